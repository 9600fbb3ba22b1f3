//! Which parts of a request body an operation takes, and a reader of JSON that builds only these.
//!
//! The parser skips every member that no validator asks for, without building it: a body costs what the operation takes
//! of it, however many and however deep its nodes are. A value of another type than its validator takes becomes an empty
//! one of its own type, which is all that the validator reports. So validators find the same issues in what is read
//! here as in the whole body.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What is built of a JSON value.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A string, a number, a boolean or null.
    Scalar,
    /// The first items of an array, and whether there are more than `max`: then one item follows that is null.
    List {
        /// What is built of each item.
        item: Box<Shape>,
        /// Number of items.
        max: usize,
    },
    /// The named members of an object.
    Object(Vec<Member>),
}

/// A member that an operation takes.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its name in the body.
    pub(crate) name: &'static str,
    /// What is built of its value.
    pub(crate) shape: Shape,
}

/// Reads the parts of a JSON text that `shape` names.
///
/// # Errors
/// When the text is not JSON. Strings and numbers that are skipped are not decoded, so escapes without a character and
/// numbers out of range are no errors there.
pub(crate) fn read_json(text: &str, shape: &Shape) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = shape.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

impl<'de> DeserializeSeed<'de> for &Shape {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Shape {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        if let Shape::List { item, max } = self {
            while read.len() < *max {
                match items.next_element_seed(&**item)? {
                    Some(value) => read.push(value),
                    None => return Ok(Value::Array(read)),
                }
            }
            if items.next_element::<IgnoredAny>()?.is_some() {
                read.push(Value::Null);
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let known: &[Member] = if let Shape::Object(known) = self { known } else { &[] };
        let mut read = Map::new();
        while let Some(member) = members.next_key_seed(KnownName(known))? {
            match member {
                // As in every JSON object: of members with one name the last counts.
                Some(member) => {
                    let value = members.next_value_seed(&member.shape)?;
                    read.insert(member.name.to_owned(), value);
                }
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(read))
    }
}

/// Reads the name of a member; `None` if no validator asks for it.
struct KnownName<'a>(&'a [Member]);

impl<'a, 'de> DeserializeSeed<'de> for KnownName<'a> {
    type Value = Option<&'a Member>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for KnownName<'a> {
    type Value = Option<&'a Member>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|member| member.name == name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(name: &'static str, shape: Shape) -> Member {
        Member { name, shape }
    }

    fn race() -> Shape {
        let leg = Shape::Object(vec![member("id", Shape::Scalar)]);
        let legs = Shape::List { item: Box::new(leg), max: 2 };
        Shape::Object(vec![member("name", Shape::Scalar), member("legs", legs)])
    }

    fn read(text: &str) -> Value {
        read_json(text, &race()).unwrap()
    }

    #[test]
    fn only_known_members_are_built() {
        let read = read(r#"{"x": {"name": 1}, "name": "Ten", "legs": [{"id": 1, "y": [[]]}], "z": null}"#);
        assert_eq!(read, json!({ "name": "Ten", "legs": [{ "id": 1 }] }));
    }

    #[test]
    fn a_value_of_another_type_is_an_empty_one() {
        assert_eq!(read(r#"{"name": {"a": [1, 2]}, "legs": {"id": 5}}"#), json!({ "name": {}, "legs": {} }));
        assert_eq!(read(r#"{"name": [1, 2], "legs": [7, [8]]}"#), json!({ "name": [], "legs": [7, []] }));
        assert_eq!((read("[1, [2]]"), read("4.5"), read("\"x\"")), (json!([]), json!(4.5), json!("x")));
    }

    #[test]
    fn no_more_items_are_built_than_one_over_the_maximum() {
        let many = format!(r#"{{"legs": [{}{{"id": 1}}]}}"#, r#"{"id": 1},"#.repeat(10_000));
        assert_eq!(read(&many), json!({ "legs": [{ "id": 1 }, { "id": 1 }, null] }));
    }

    #[test]
    fn any_depth_is_skipped_and_must_still_be_json() {
        let (open, close) = ("[{\"a\":".repeat(100_000), "}]".repeat(100_000));
        assert_eq!(read(&format!(r#"{{"more": {open}1{close}, "name": "Ten"}}"#)), json!({ "name": "Ten" }));
        for malformed in [format!(r#"{{"more": {open}1"#), r#"{"more": [1,]}"#.to_owned(), "{} {}".to_owned()]
        {
            assert!(read_json(&malformed, &race()).is_err());
        }
    }

    #[test]
    fn the_last_of_equal_members_counts() {
        assert_eq!(read(r#"{"name": "A", "name": "B"}"#), json!({ "name": "B" }));
    }
}
