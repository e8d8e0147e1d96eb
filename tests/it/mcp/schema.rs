//! Compares a value with a JSON Schema, as clients do with the results of tools.

use serde_json::{Map, Value};

/// Checks that a value is as a schema describes it, and has nothing that the schema does not describe.
#[track_caller]
pub fn check(schema: &Value, value: &Value) {
    if let Err(reason) = matches(schema, schema, value) {
        panic!("{reason} in {value}, described by {schema}");
    }
}

fn matches(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Value::Object(rules) = schema else {
        return if schema == &Value::Bool(true) { Ok(()) } else { Err("no value fits".into()) };
    };
    for (keyword, rule) in rules {
        let fits = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" => true,
            "properties" | "required" | "additionalProperties" => true,
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                matches(root, root.pointer(pointer).expect(pointer), value)?;
                true
            }
            "type" => match rule {
                Value::Array(names) => names.iter().any(|name| has_type(name, value)),
                name => has_type(name, value),
            },
            "const" => rule == value,
            "enum" => rule.as_array().unwrap().contains(value),
            "anyOf" | "oneOf" => {
                let mut options = rule.as_array().unwrap().iter();
                options.any(|option| matches(root, option, value).is_ok())
            }
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    matches(root, rule, item)?;
                }
                true
            }
            other => panic!("add the keyword {other} to this check"),
        };
        if !fits {
            return Err(format!("{value} contradicts {keyword} {rule}"));
        }
    }
    value.as_object().map_or(Ok(()), |members| members_match(root, rules, members))
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

fn members_match(
    root: &Value,
    rules: &Map<String, Value>,
    members: &Map<String, Value>,
) -> Result<(), String> {
    for name in rules.get("required").and_then(Value::as_array).into_iter().flatten() {
        if !members.contains_key(name.as_str().unwrap()) {
            return Err(format!("{name} is missing"));
        }
    }
    // Only a schema with properties or with other properties describes an object by itself.
    let properties = rules.get("properties").and_then(Value::as_object);
    let others = rules.get("additionalProperties");
    for (name, value) in members {
        match (properties.and_then(|properties| properties.get(name)), others) {
            (Some(schema), _) | (None, Some(schema)) => matches(root, schema, value)?,
            (None, None) if properties.is_some() => return Err(format!("{name} is not described")),
            (None, None) => {}
        }
    }
    Ok(())
}

#[test]
fn a_value_that_is_not_as_described_is_found() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "null"], "minimum": 0},
            "b": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]},
        },
        "required": ["a"],
        "$defs": {"B": {"type": "array", "items": {"enum": ["x", "y"]}}},
    });
    let fits = |value: Value| matches(&schema, &schema, &value).is_ok();
    assert!(fits(serde_json::json!({"a": 1, "b": ["x", "y"]})));
    assert!(fits(serde_json::json!({"a": null, "b": null})));
    let wrong = [
        serde_json::json!({}),
        serde_json::json!({"a": -1}),
        serde_json::json!({"a": "1"}),
        serde_json::json!({"a": 1, "b": ["z"]}),
        serde_json::json!({"a": 1, "c": 1}),
        serde_json::json!([]),
    ];
    for value in wrong {
        assert!(!fits(value.clone()), "{value}");
    }
}
