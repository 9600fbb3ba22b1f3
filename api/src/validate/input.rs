//! Reads JSON objects field by field, collecting every issue. The same `read` function that checks a body also
//! describes it for the OpenAPI document: it runs once without a body, and each field leaves its schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};

use crate::validate::issues::{Issue, IssueReport, PathSegment, code};
use crate::validate::validators::Validator;

/// Named schemas of the document.
pub(crate) type Schemas = BTreeMap<String, RefOr<Schema>>;

/// A request body, or an object within one.
pub(crate) trait Input: Sized {
    /// Its name in the document.
    const NAME: &'static str;

    /// Reads every field, and only then the first missing one ends it: all issues are found at once.
    fn read(fields: &mut Fields<'_>) -> Option<Self>;

    /// A body as a partner would send it.
    fn example() -> Value;

    /// The object as a type, or `None` with issues reported.
    fn check(object: &Map<String, Value>, report: &mut IssueReport) -> Option<Self> {
        Self::read(&mut Fields(FieldsMode::Check { object, report }))
    }

    /// Puts its schema, and those it names, into the document; answers whether a field is required.
    fn describe(schemas: &mut Schemas) -> bool {
        let object = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Object));
        let mut described = ObjectSchema { object, has_required: false };
        // Without a body there is no value; what matters is what the fields leave behind.
        drop(Self::read(&mut Fields(FieldsMode::Describe { described: &mut described, schemas })));
        schemas.insert(Self::NAME.to_owned(), described.object.examples([Self::example()]).into());
        described.has_required
    }
}

/// A body as a type, or everything that is wrong with it. No body counts as an empty object where every field is
/// optional.
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

/// The fields of one object, being checked or being described.
pub(crate) struct Fields<'a>(FieldsMode<'a>);

enum FieldsMode<'a> {
    Check { object: &'a Map<String, Value>, report: &'a mut IssueReport },
    Describe { described: &'a mut ObjectSchema, schemas: &'a mut Schemas },
}

/// What the fields of an object have left behind.
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
    /// A field that must be there.
    pub(crate) fn required<R: Validator>(
        &mut self,
        name: &'static str,
        about: &'static str,
        rule: R,
    ) -> Option<R::Out> {
        match &mut self.0 {
            FieldsMode::Check { object, report } => {
                report.within(PathSegment::Field(name), |report| match object.get(name) {
                    Some(value) => rule.check(value, report),
                    None => {
                        report.add(code::REQUIRED, "is required");
                        None
                    }
                })
            }
            FieldsMode::Describe { described, schemas } => {
                described.add_property(name, with_description(rule.schema(schemas), about));
                described.object = std::mem::take(&mut described.object).required(name);
                described.has_required = true;
                None
            }
        }
    }

    /// A field that may be left out. `None` too when it is wrong: then an issue ends the whole reading.
    pub(crate) fn optional<R: Validator>(
        &mut self,
        name: &'static str,
        about: &'static str,
        rule: R,
    ) -> Option<R::Out> {
        match &mut self.0 {
            FieldsMode::Check { object, report } => {
                let value = object.get(name)?;
                report.within(PathSegment::Field(name), |report| rule.check(value, report))
            }
            FieldsMode::Describe { described, schemas } => {
                described.add_property(name, with_description(rule.schema(schemas), about));
                None
            }
        }
    }

    /// Checks fields that may only go wrong together.
    pub(crate) fn check_together(&mut self, check: impl FnOnce(&mut IssueReport)) {
        if let FieldsMode::Check { report, .. } = &mut self.0 {
            check(report);
        }
    }

    /// A field that stands for `default` when it is left out.
    pub(crate) fn optional_or<R: Validator>(
        &mut self,
        name: &'static str,
        (about, default): (&'static str, R::Out),
        rule: R,
    ) -> R::Out
    where
        R::Out: Clone + Into<Value>,
    {
        let value = self.optional(name, about, rule);
        if let FieldsMode::Describe { described, .. } = &mut self.0 {
            let mut built = std::mem::take(&mut described.object).build();
            if let Some(RefOr::T(Schema::Object(property))) = built.properties.get_mut(name) {
                property.default = Some(default.clone().into());
            }
            described.object = built.into();
        }
        value.unwrap_or(default)
    }
}

fn with_description(schema: RefOr<Schema>, about: &str) -> RefOr<Schema> {
    let about = about.to_owned();
    match schema {
        RefOr::Ref(mut reference) => {
            reference.description = about;
            RefOr::Ref(reference)
        }
        RefOr::T(Schema::Object(mut object)) => {
            object.description = Some(about);
            RefOr::T(Schema::Object(object))
        }
        RefOr::T(Schema::Array(mut array)) => {
            array.description = Some(about);
            RefOr::T(Schema::Array(array))
        }
        RefOr::T(Schema::OneOf(mut choices)) => {
            choices.description = Some(about);
            RefOr::T(Schema::OneOf(choices))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::validators::{Boolean, Integer, ListOf, Nullable, nested, text, uuid};

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
            let laps = fields.optional_or("laps", ("Rounds.", 3), Integer { min: 1, max: 9 });
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
