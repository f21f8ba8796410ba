//! The wire format of protocol buffers: what of it a trace needs.

/// A message being written.
#[derive(Default)]
pub(super) struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    /// An unsigned number, a boolean or an enumeration.
    pub fn uint(mut self, field: u32, value: u64) -> Message {
        self.key(field, 0);
        self.varint(value);
        self
    }

    /// A fixed64.
    pub fn fixed64(mut self, field: u32, value: u64) -> Message {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A string.
    pub fn text(self, field: u32, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    /// A message inside.
    pub fn message(self, field: u32, value: &Message) -> Message {
        self.bytes(field, &value.0)
    }

    fn bytes(mut self, field: u32, value: &[u8]) -> Message {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }
}
