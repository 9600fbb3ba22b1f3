//! Parses JSON objects field by field, collecting every issue.
//!
//! The `read` function of an [`Input`] also describes it, for the OpenAPI document and for the reader of bodies: there it
//! runs without a body, and each field adds its schema or its shape.

use serde_json::{Map, Value};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};

use crate::validate::issues::{Issue, IssueReport, PathSegment, code};
use crate::validate::shape::{Member, Shape};
use crate::validate::validators::{Schemas, Validator, report_wrong_type};

/// Entries of a batch that cost as much of the limit of a key as a request for one.
pub(crate) const ENTRIES_PER_UNIT: usize = 20;

/// Returns what a batch costs of the limit of a key.
pub(crate) fn batch_units(entries: usize) -> u32 {
    count_units(entries, ENTRIES_PER_UNIT)
}

/// Returns what entries cost of which `per_unit` are as much work as a request for one.
pub(crate) fn count_units(entries: usize, per_unit: usize) -> u32 {
    u32::try_from(entries.div_ceil(per_unit)).unwrap_or(u32::MAX).max(1)
}

/// How large a request body may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// One object.
    Single,
    /// One object with the ids of many photos.
    Ids,
    /// Many objects of one kind.
    Batch,
}

/// A request body, or an object within one.
pub(crate) trait Input: Sized {
    /// The name of its schema in the document.
    const NAME: &'static str;
    /// Its size as a request body.
    const SIZE: BodySize = BodySize::Single;

    /// What it costs of the limit of a key that is not smaller: one unit, and in a batch one for each [`ENTRIES_PER_UNIT`] entries.
    /// A start list costs one for some thousand.
    fn units(&self) -> u32 {
        1
    }

    /// Reads every field before returning, so that all issues are found at once; `None` if a required field is missing.
    fn read(fields: &mut Fields<'_>) -> Option<Self>;

    /// Returns a valid body, as a partner would send it.
    fn example() -> Value;

    /// Returns the object as a type, or `None` after adding issues.
    fn check(object: &Map<String, Value>, report: &mut IssueReport) -> Option<Self> {
        Self::read(&mut Fields(FieldsMode::Check { object, report }))
    }

    /// Returns the members that it takes, and what it takes of each.
    fn shape() -> Shape {
        let mut members = Vec::new();
        // There is no body, so there is no value: only the shapes of the fields matter.
        drop(Self::read(&mut Fields(FieldsMode::List { members: &mut members })));
        Shape::Object(members)
    }

    /// Adds its schema and those it refers to; returns whether any field is required.
    fn describe(schemas: &mut Schemas) -> bool {
        let object = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Object));
        let mut schema = ObjectSchema { object, has_required: false };
        // There is no body, so there is no value: only the schemas of the fields matter.
        drop(Self::read(&mut Fields(FieldsMode::Describe { schema: &mut schema, schemas })));
        schemas.insert(Self::NAME.to_owned(), schema.object.examples([Self::example()]).into());
        schema.has_required
    }
}

/// Parses a request body, or returns all its issues. A missing body is an empty object if every field is optional.
pub(crate) fn parse<T: Input>(body: Option<&Value>) -> Result<T, Vec<Issue>> {
    let mut report = IssueReport::default();
    let parsed = match body {
        Some(Value::Object(object)) => T::check(object, &mut report),
        Some(_) => {
            report.add(code::INVALID_TYPE, "the body must be an object");
            None
        }
        None => {
            let empty = T::check(&Map::new(), &mut report);
            if empty.is_none() {
                report = IssueReport::default();
                report.add(code::REQUIRED, "a JSON body is required");
            }
            empty
        }
    };
    let issues = report.into_issues();
    match parsed {
        Some(parsed) if issues.is_empty() => Ok(parsed),
        _ => Err(issues),
    }
}

/// The fields of one object: being checked, being described, or being listed for the reader of bodies.
pub(crate) struct Fields<'a>(FieldsMode<'a>);

enum FieldsMode<'a> {
    Check { object: &'a Map<String, Value>, report: &'a mut IssueReport },
    Describe { schema: &'a mut ObjectSchema, schemas: &'a mut Schemas },
    List { members: &'a mut Vec<Member> },
}

/// The schema of an object, built field by field.
struct ObjectSchema {
    object: ObjectBuilder,
    has_required: bool,
}

impl ObjectSchema {
    fn add_property(&mut self, name: &str, schema: RefOr<Schema>) {
        self.object = std::mem::take(&mut self.object).property(name, schema);
    }
}

impl Fields<'_> {
    /// Reads a required field.
    pub(crate) fn required<R: Validator>(
        &mut self,
        name: &'static str,
        description: &'static str,
        validator: R,
    ) -> Option<R::Out> {
        match &mut self.0 {
            FieldsMode::Check { object, report } => {
                report.within(PathSegment::Field(name), |report| match object.get(name) {
                    Some(value) => validator.check(value, report),
                    None => {
                        report.add(code::REQUIRED, "is required");
                        None
                    }
                })
            }
            FieldsMode::Describe { schema, schemas } => {
                schema.add_property(name, with_description(validator.schema(schemas), description));
                schema.object = std::mem::take(&mut schema.object).required(name);
                schema.has_required = true;
                None
            }
            FieldsMode::List { members } => {
                members.push(Member { name, shape: validator.shape() });
                None
            }
        }
    }

    /// Reads an optional field; `None` if it is missing or invalid. An invalid field makes the whole input invalid.
    pub(crate) fn optional<R: Validator>(
        &mut self,
        name: &'static str,
        description: &'static str,
        validator: R,
    ) -> Option<R::Out> {
        match &mut self.0 {
            FieldsMode::Check { object, report } => {
                let value = object.get(name)?;
                report.within(PathSegment::Field(name), |report| validator.check(value, report))
            }
            FieldsMode::Describe { schema, schemas } => {
                schema.add_property(name, with_description(validator.schema(schemas), description));
                None
            }
            FieldsMode::List { members } => {
                members.push(Member { name, shape: validator.shape() });
                None
            }
        }
    }

    /// Returns how many of these fields there are, valid or not.
    pub(crate) fn count_present(&self, names: &[&str]) -> usize {
        match &self.0 {
            FieldsMode::Check { object, .. } => {
                names.iter().filter(|name| object.contains_key(**name)).count()
            }
            FieldsMode::Describe { .. } | FieldsMode::List { .. } => 0,
        }
    }

    /// Checks a condition on several fields.
    pub(crate) fn check_together(&mut self, check: impl FnOnce(&mut IssueReport)) {
        if let FieldsMode::Check { report, .. } = &mut self.0 {
            check(report);
        }
    }

    /// Reads an optional field that has a default.
    pub(crate) fn optional_or<R: Validator>(
        &mut self,
        name: &'static str,
        description: &'static str,
        default: R::Out,
        validator: R,
    ) -> R::Out
    where
        R::Out: Clone + Into<Value>,
    {
        let value = self.optional(name, description, validator);
        if let FieldsMode::Describe { schema, .. } = &mut self.0 {
            let mut built = std::mem::take(&mut schema.object).build();
            if let Some(RefOr::T(Schema::Object(property))) = built.properties.get_mut(name) {
                property.default = Some(default.clone().into());
            }
            schema.object = built.into();
        }
        value.unwrap_or(default)
    }
}

/// A validator of an object that is an [`Input`] itself.
pub(crate) struct Nested<T>(std::marker::PhantomData<T>);

/// Returns a validator of nested objects.
pub(crate) fn nested<T: Input>() -> Nested<T> {
    Nested(std::marker::PhantomData)
}

impl<T: Input> Validator for Nested<T> {
    type Out = T;

    fn check(&self, value: &Value, report: &mut IssueReport) -> Option<T> {
        match value {
            Value::Object(object) => T::check(object, report),
            _ => report_wrong_type("an object", value, report),
        }
    }

    fn shape(&self) -> Shape {
        T::shape()
    }

    fn schema(&self, schemas: &mut Schemas) -> RefOr<Schema> {
        T::describe(schemas);
        RefOr::Ref(Ref::from_schema_name(T::NAME))
    }
}

fn with_description(schema: RefOr<Schema>, description: &str) -> RefOr<Schema> {
    let description = description.to_owned();
    match schema {
        RefOr::Ref(mut reference) => {
            reference.description = description;
            RefOr::Ref(reference)
        }
        RefOr::T(Schema::Object(mut object)) => {
            object.description = Some(description);
            RefOr::T(Schema::Object(object))
        }
        RefOr::T(Schema::Array(mut array)) => {
            array.description = Some(description);
            RefOr::T(Schema::Array(array))
        }
        RefOr::T(Schema::OneOf(mut choices)) => {
            choices.description = Some(description);
            RefOr::T(Schema::OneOf(choices))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::validate::shape;
    use crate::validate::validators::{Boolean, Integer, ListOf, Nullable, text, uuid};

    #[derive(Debug, PartialEq)]
    struct Race {
        name: String,
        laps: u32,
        night: Option<Option<bool>>,
        legs: Option<Vec<Leg>>,
    }

    #[derive(Debug, PartialEq)]
    struct Leg {
        id: uuid::Uuid,
    }

    impl Input for Leg {
        const NAME: &'static str = "Leg";
        fn read(fields: &mut Fields<'_>) -> Option<Self> {
            let id = fields.required("id", "Its id.", uuid());
            Some(Self { id: id? })
        }
        fn example() -> Value {
            json!({})
        }
    }

    impl Input for Race {
        const NAME: &'static str = "Race";
        fn read(fields: &mut Fields<'_>) -> Option<Self> {
            let name = fields.required("name", "Its name.", text(1, 5));
            let laps = fields.optional_or("laps", "Rounds.", 3, Integer { min: 1, max: 9 });
            let night = fields.optional("night", "After dark.", Nullable(Boolean));
            let legs = fields.optional("legs", "Parts.", ListOf { item: nested(), min: 1, max: 2 });
            Some(Self { name: name?, laps, night, legs })
        }
        fn example() -> Value {
            json!({ "name": "Ten" })
        }
    }

    fn issues(body: Value) -> Vec<(Value, &'static str)> {
        let issues = parse::<Race>(Some(&body)).unwrap_err();
        issues.into_iter().map(|i| (serde_json::to_value(i.path).unwrap(), i.code)).collect()
    }

    /// Bodies of every shape, with names that a race has and others.
    fn bodies() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2i64..12).prop_map(Value::from),
            (0.0..10.0_f64).prop_map(Value::from),
            "[a-z]{0,7}".prop_map(Value::from),
            Just(json!("01932c07-93a1-7c40-8b1f-2d5e6f708192")),
        ];
        let name = prop::sample::select(vec!["name", "laps", "night", "legs", "id", "more"]);
        leaf.prop_recursive(4, 40, 5, move |inner| {
            let members = prop::collection::vec((name.clone().prop_map(str::to_owned), inner.clone()), 0..6);
            prop_oneof![
                prop::collection::vec(inner, 0..5).prop_map(Value::from),
                members.prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_read_of_a_body_has_the_issues_of_the_whole_body(body in bodies()) {
            let read = shape::read_json(&body.to_string(), &Race::shape()).unwrap();
            prop_assert_eq!(parse::<Race>(Some(&read)), parse::<Race>(Some(&body)));
        }
    }

    #[test]
    fn a_valid_body_is_parsed_and_unknown_fields_are_ignored() {
        let body = json!({"name": "Ten", "night": null, "more": 1, "laps": 4.0});
        let race = Race { name: "Ten".to_owned(), laps: 4, night: Some(None), legs: None };
        assert_eq!(parse::<Race>(Some(&body)), Ok(race));
    }

    #[test]
    fn all_issues_are_found_at_once_with_their_paths() {
        let body = json!({"name": "", "laps": 1.5, "night": "x", "legs": [{"id": "x"}, {}]});
        let expected = vec![
            (json!(["name"]), code::TOO_SMALL),
            (json!(["laps"]), code::NOT_MULTIPLE_OF),
            (json!(["night"]), code::INVALID_TYPE),
            (json!(["legs", 0, "id"]), code::INVALID_FORMAT),
            (json!(["legs", 1, "id"]), code::REQUIRED),
        ];
        assert_eq!(issues(body), expected);
    }

    #[test]
    fn no_body_is_one_issue_where_a_field_is_required() {
        let issues = parse::<Race>(None).unwrap_err();
        assert_eq!((issues.len(), issues[0].code, issues[0].path.len()), (1, code::REQUIRED, 0));
    }

    #[test]
    fn the_schema_contains_the_constraints_that_are_checked() {
        let mut schemas = Schemas::new();
        assert!(Race::describe(&mut schemas));
        let race = serde_json::to_value(&schemas["Race"]).unwrap();
        assert_eq!(race["required"], json!(["name"]));
        assert_eq!(race["properties"]["laps"]["default"], json!(3));
        assert_eq!(race["properties"]["name"]["maxLength"], json!(5));
        assert_eq!(race["properties"]["night"]["type"], json!(["boolean", "null"]));
        assert_eq!(race["properties"]["legs"]["items"]["$ref"], json!("#/components/schemas/Leg"));
        assert!(schemas.contains_key("Leg"));
    }
}
