//! The end of a sequence of messages.

use std::{
    iter, slice,
    sync::{Arc, OnceLock},
};

use crate::Message;

const ROOM: usize = 32;

/// Some messages, in slots that clones share. Whoever pushes first into a free slot takes it for
/// good, in place; a clone that goes on differently gets slots of its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    /// `None` only where there are no messages.
    slots: Option<Arc<Slots>>,
    /// The slots that are this tail's own; a clone may have filled those after them.
    len: usize,
}

type Slots = [OnceLock<Arc<Message>>; ROOM];

pub(super) type Iter<'a> = iter::FilterMap<
    slice::Iter<'a, OnceLock<Arc<Message>>>,
    fn(&OnceLock<Arc<Message>>) -> Option<&Arc<Message>>,
>;

impl Tail {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == ROOM
    }

    pub(super) fn get(&self, index: usize) -> Option<&Arc<Message>> {
        self.filled().get(index)?.get()
    }

    pub(super) fn last(&self) -> Option<&Arc<Message>> {
        self.filled().last()?.get()
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        self.filled().iter().filter_map(OnceLock::get)
    }

    /// The first `count` messages; all if there are fewer.
    pub(super) fn take(&self, count: usize) -> Self {
        match count.min(self.len) {
            0 => Self::default(),
            len => Self { slots: self.slots.clone(), len },
        }
    }

    /// Adds a message at the end. There must be room.
    pub(super) fn push(&mut self, message: Arc<Message>) {
        if let Err(message) = self.try_push(message) {
            let own = Arc::<Slots>::default();
            for (slot, message) in own.iter().zip(self.iter().cloned().chain([message])) {
                slot.get_or_init(|| message);
            }
            self.slots = Some(own);
        }
        self.len += 1;
    }

    /// Puts a message into the next slot, or gives it back.
    fn try_push(&self, message: Arc<Message>) -> Result<(), Arc<Message>> {
        match self.slots.as_ref().and_then(|slots| slots.get(self.len)) {
            Some(next) => next.set(message),
            None => Err(message),
        }
    }

    fn filled(&self) -> &[OnceLock<Arc<Message>>] {
        let slots = self.slots.as_deref().map(|slots| slots.as_slice()).unwrap_or_default();
        slots.get(..self.len).unwrap_or_default()
    }
}
