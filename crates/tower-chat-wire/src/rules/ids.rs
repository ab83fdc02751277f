//! Converts call ids to ids that a service accepts.

use std::collections::{HashMap, HashSet};

use tower_chat_core::{
    Role,
    pairing::{Answers, Candidate, Matcher, Target},
};

use super::{
    names::digest,
    service_rules::{IdForm, IdRule, Unique, is_word},
};

/// Assigns the ids with which the calls of a conversation are sent. The id depends only on the call
/// and on earlier calls, so that each request of the conversation contains the same id.
#[derive(Debug)]
pub(super) struct CallIds {
    rule: IdRule,
    /// The calls of the current round. A round consists of consecutive assistant messages and the
    /// results that follow them.
    calls: Matcher<String>,
    /// The ids with which the calls of the round are sent, in the order of the calls.
    sent_ids: Vec<Option<String>>,
    /// The sent ids of the current round or, depending on the rule, of the whole conversation. No
    /// later call may have one of them.
    used_ids: HashSet<String>,
    /// For each id that several calls have, the number that is appended to the id of the next call.
    next_number: HashMap<String, usize>,
    /// The number of calls in the current round or, depending on the rule, in the conversation.
    count: usize,
    /// Whether a message of another role follows the assistant messages of the round.
    is_answered: bool,
}

impl CallIds {
    pub(super) fn new(rule: IdRule) -> Self {
        Self {
            rule,
            calls: Matcher::default(),
            sent_ids: Vec::new(),
            used_ids: HashSet::new(),
            next_number: HashMap::new(),
            count: 0,
            is_answered: false,
        }
    }

    /// Begins the next message. `has_calls` is whether the message has calls. An assistant message
    /// with calls begins a new round if a message of another role precedes it.
    pub(super) fn begin_message(&mut self, role: Role, has_calls: bool) {
        if role != Role::Assistant {
            self.is_answered = true;
        } else if has_calls && self.is_answered {
            self.calls = Matcher::default();
            self.sent_ids.clear();
            if self.rule.unique == Unique::Answer {
                self.used_ids.clear();
                self.next_number.clear();
                self.count = 0;
            }
            self.is_answered = false;
        }
    }

    /// Returns the id to send with the next call. Returns `None` if the call has no id and the
    /// service does not require an id.
    pub(super) fn call(&mut self, id: Option<&str>) -> Option<String> {
        let original = id.unwrap_or_default();
        let sent = match (original.is_empty(), self.rule.required) {
            (true, false) => id.map(str::to_owned),
            (true, true) => Some(self.unused_id(format!("call_{}", self.count))),
            (false, _) => Some(self.unused_id(self.acceptable(original))),
        };
        self.count += 1;
        self.used_ids.extend(sent.clone());
        self.calls.push(Candidate::of_id(id).into_owned());
        self.sent_ids.push(sent.clone());
        sent
    }

    /// Returns the id to send with the next result: the id that was sent with its call. If the
    /// result answers no call, returns the result's own id in a form that the service accepts.
    pub(super) fn result(&mut self, id: Option<&str>) -> Option<String> {
        match self.calls.answer(Target::id(id)) {
            Answers::Call(call) => self.sent_ids.get(call).cloned().flatten(),
            Answers::Again | Answers::Nothing if !self.rule.required => id.map(str::to_owned),
            Answers::Again | Answers::Nothing => Some(self.acceptable(id.unwrap_or("call"))),
        }
    }

    /// Returns the id itself if the service accepts it. Otherwise returns an accepted id that
    /// depends only on the original id.
    fn acceptable(&self, id: &str) -> String {
        let is_accepted = |it: char| match self.rule.form {
            IdForm::Any => true,
            IdForm::Word | IdForm::Nine => is_word(it),
        };
        let fits = id.chars().all(is_accepted) && id.chars().count() <= self.rule.max_length;
        // For `IdForm::Nine`, this function only replaces characters. The writer of the body
        // converts the ids to nine characters.
        if fits || self.rule.form == IdForm::Nine && id.chars().all(is_word) {
            return id.to_owned();
        }
        let id_of_words = id.chars().map(|it| if is_accepted(it) { it } else { '_' });
        if id.chars().count() <= self.rule.max_length || self.rule.form == IdForm::Nine {
            return id_of_words.collect();
        }
        let beginning: String = id_of_words.take(self.rule.max_length.saturating_sub(17)).collect();
        format!("{beginning}_{:016x}", digest(id))
    }

    /// Returns the wanted id. If an earlier call has this id, appends a number to it.
    fn unused_id(&mut self, wanted: String) -> String {
        if !self.used_ids.contains(&wanted) {
            return wanted;
        }
        let number = self.next_number.entry(wanted.clone()).or_insert(2);
        loop {
            let end = format!("_{number}");
            let room = self.rule.max_length.max(24).saturating_sub(end.len());
            let id: String = wanted.chars().take(room).chain(end.chars()).collect();
            *number += 1;
            if !self.used_ids.contains(&id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(form: IdForm, max_length: usize, unique: Unique) -> CallIds {
        CallIds::new(IdRule { form, max_length, unique, required: true })
    }

    #[test]
    fn equal_call_ids_of_several_answers_become_distinct_if_the_service_requires_it() {
        for (unique, second) in [(Unique::Request, "call_1_2"), (Unique::Answer, "call_1")] {
            let mut ids = ids(IdForm::Word, 40, unique);
            for sent in ["call_1", second] {
                ids.begin_message(Role::Assistant, true);
                assert_eq!(ids.call(Some("call_1")).as_deref(), Some(sent));
                ids.begin_message(Role::Tool, false);
                assert_eq!(ids.result(Some("call_1")).as_deref(), Some(sent));
            }
        }
    }

    #[test]
    fn missing_equal_invalid_and_long_call_ids_become_valid_and_results_get_the_same_ids() {
        let mut ids = ids(IdForm::Word, 40, Unique::Request);
        ids.begin_message(Role::Assistant, true);
        let long = "x".repeat(83);
        let own = [None, Some(""), Some("a"), Some("a"), Some("functions.f:0"), Some(&*long)];
        let sent = own.map(|id| ids.call(id).expect("an id"));
        for id in &sent {
            assert!(!id.is_empty() && id.len() <= 40 && id.chars().all(is_word), "{id}");
        }
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), sent.len(), "{sent:?}");
        ids.begin_message(Role::Tool, false);
        for (own, sent) in own.into_iter().zip(&sent) {
            assert_eq!(ids.result(own).as_ref(), Some(sent), "{own:?}");
        }
    }
}
