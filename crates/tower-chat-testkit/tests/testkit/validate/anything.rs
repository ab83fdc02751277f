//! Tests that the validator does not panic for any JSON.

use serde_json::{Value, json};
use tower_chat_testkit::{
    Rng,
    validate::{Rule, Wire, validate},
};

use super::{data, sites::messages};

const CASES: usize = 2_000;

/// Damages JSON values. The same seed results in the same damage.
struct Damage(Rng);

impl Damage {
    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    fn odd(&mut self) -> Value {
        let odd = [
            json!(null),
            json!(""),
            json!(" "),
            json!("tool"),
            json!("assistant"),
            json!("tool_result"),
            json!(-1.5e300),
            json!(u64::MAX),
            json!(true),
            json!([]),
            json!([[]]),
            json!({}),
            json!({"type": {"role": []}}),
            json!("\u{0}\u{10FFFF}"),
        ];
        odd[self.below(odd.len())].clone()
    }

    /// Returns a random value that is nested in `value`, or `value` itself.
    fn inside<'a>(&mut self, value: &'a mut Value) -> &'a mut Value {
        if self.below(6) == 0 {
            return value;
        }
        let entries = match &*value {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        };
        if entries == 0 {
            return value;
        }
        let index = self.below(entries);
        match value {
            Value::Array(items) => self.inside(&mut items[index]),
            value => {
                let fields = value.as_object_mut().unwrap();
                self.inside(fields.values_mut().nth(index).unwrap())
            }
        }
    }

    fn mutate(&mut self, body: &mut Value) {
        let other = match self.below(2) {
            0 => self.odd(),
            _ => self.inside(&mut body.clone()).clone(),
        };
        match (self.below(4), self.inside(body)) {
            (0, Value::Array(items)) if !items.is_empty() => {
                let (from, to) = (self.below(items.len()), self.below(items.len()));
                items.swap(from, to);
            }
            (1, Value::Array(items)) if !items.is_empty() => {
                let index = self.below(items.len());
                items.remove(index);
            }
            (2, Value::Array(items)) => {
                let index = self.below(items.len() + 1);
                items.insert(index, other);
            }
            (0 | 1, Value::Object(fields)) if !fields.is_empty() => {
                let name = fields.keys().nth(self.below(fields.len())).unwrap().clone();
                fields.remove(&name);
            }
            (_, value) => *value = other,
        }
    }
}

fn check(wire: Wire, body: &Value) -> bool {
    let result = validate(wire, body);
    assert_eq!(result, validate(wire, body));
    let Err(invalid) = result else { return true };
    for found in invalid.violations() {
        assert!(found.message < messages(wire, body).len().max(1), "{found}: {body}");
        assert!(found.to_string().contains(found.source));
    }
    false
}

#[test]
fn broken_bodies_of_every_wire_are_validated_without_a_panic() {
    let bodies = data::accepted();
    let seed = match std::env::var("TOWER_CHAT_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => 0x9E37_79B9_7F4A_7C15,
    };
    println!("seed: TOWER_CHAT_SEED={seed}");
    let mut rng = Damage(Rng::of(seed, 0));
    let mut valid = 0;
    for case in 0..CASES {
        let accepted = &bodies[case % bodies.len()];
        let mut body = accepted.body.clone();
        for _ in 0..=rng.below(5) {
            let field = accepted.wire.conversation_field();
            let part = match body.get_mut(field) {
                Some(_) if rng.below(8) == 0 => &mut body,
                Some(conversation) => conversation,
                None => &mut body,
            };
            rng.mutate(part);
        }
        valid += usize::from(check(accepted.wire, &body));
        for wire in Wire::ALL {
            check(wire, &body);
        }
    }
    println!("{CASES} cases, {valid} of them still valid");
    assert!(valid > CASES / 20 && valid < CASES * 19 / 20);
}

#[test]
fn a_body_without_a_conversation_is_refused() {
    for wire in Wire::ALL {
        let field = wire.conversation_field();
        for body in [json!(null), json!([]), json!({}), json!({field: 7}), json!({field: [null]})] {
            let invalid = validate(wire, &body).expect_err(&format!("{wire} {body}"));
            assert_eq!((invalid.first().rule, invalid.first().message), (Rule::Shape, 0));
        }
    }
}

#[test]
fn ten_thousand_rounds_and_ten_thousand_calls_in_one_round_are_valid() {
    let id = |number| format!("call_{number}");
    let call = |number| json!({"id": id(number), "type": "function"});
    let result = |number| json!({"role": "tool", "tool_call_id": id(number), "content": "", "tool_name": ""});
    let calls = |calls: Vec<Value>| json!({"role": "assistant", "tool_calls": calls});
    let rounds = (0..10_000).flat_map(|number| [calls(vec![call(number)]), result(number)]);
    let one_round = std::iter::once(calls((0..10_000).map(call).collect()));
    let one_round = one_round.chain((0..10_000).rev().map(result));
    for messages in [rounds.collect::<Vec<_>>(), one_round.collect()] {
        let body = json!({ "messages": messages });
        for wire in [Wire::OpenAiChat, Wire::Cohere, Wire::Ollama] {
            assert_eq!(validate(wire, &body), Ok(()));
        }
    }
}
