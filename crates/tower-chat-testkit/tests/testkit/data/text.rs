//! Generates pseudorandom numbers, and texts that are all different, from a seed.

use serde_json::{Value, json};

/// A generator of pseudorandom numbers: SplitMix64 (<https://prng.di.unimi.it/splitmix64.c>).
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn one_of(&mut self, items: &[&'static str]) -> &'static str {
        items[self.below(items.len())]
    }

    /// Generates letters and digits for an id.
    pub(crate) fn token(&mut self, length: usize) -> String {
        const ALPHABET: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789";
        (0..length).map(|_| char::from(ALPHABET[self.below(ALPHABET.len())])).collect()
    }
}

const PORTS: [&str; 8] =
    ["Göteborg", "Ålesund", "神戸", "Πειραιάς", "Le Havre", "Gdańsk", "Владивосток", "Cork ⚓"];
const SYLLABLES: [&str; 16] = [
    "ka", "lo", "mi", "ra", "se", "tu", "ve", "no", "bi", "da", "fe", "gu", "ho", "ji", "pa", "zu",
];

/// Generates texts of a harbour office, each with the name of a different ship.
#[derive(Debug)]
pub(crate) struct Texts {
    pub(crate) rng: Rng,
    ships: usize,
}

impl Texts {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), ships: 0 }
    }

    pub(crate) fn ship(&mut self) -> String {
        self.ships += 1;
        let part = |digit: usize| SYLLABLES[digit % 16];
        let name =
            format!("{}{}{}", part(self.ships), part(self.ships / 16), part(self.ships / 256));
        let (first, rest) = name.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    }

    pub(crate) fn port(&mut self) -> &'static str {
        self.rng.one_of(&PORTS)
    }

    pub(crate) fn rules(&mut self) -> String {
        let (ship, port) = (self.ship(), self.port());
        format!("You work in the harbour office of {port}. The {ship} has priority.")
    }

    pub(crate) fn question(&mut self) -> String {
        let (ship, port, hour) = (self.ship(), self.port(), self.rng.below(24));
        match self.rng.below(4) {
            0 => format!("Can the {ship} moor in {port} at {hour}:00?"),
            1 => format!("When is high water in {port} for the \"{ship}\"?\nShe draws 9.5 m."),
            2 => format!("Which crane unloads the {ship} in {port} 🚢?"),
            _ => format!("The {ship} is late: tell {port} that she comes at {hour}:00."),
        }
    }

    pub(crate) fn thought(&mut self) -> String {
        let (ship, port) = (self.ship(), self.port());
        format!("The {ship} needs a berth in {port}, and the tide decides when.\nLook up both.")
    }

    pub(crate) fn preamble(&mut self) -> String {
        format!("I look up what is known of the {}.", self.ship())
    }

    pub(crate) fn answer(&mut self) -> String {
        let (ship, berth, port) = (self.ship(), self.rng.below(90) + 1, self.port());
        match self.rng.below(3) {
            0 => format!("Berth {berth} in {port} is free for the {ship}."),
            1 => {
                format!("**{ship}**: berth {berth}\n\n- high water 06:40\n- pilot in {port} — yes")
            }
            _ => format!("The {ship} may come to {port}; she has berth {berth} \u{1f44d}."),
        }
    }

    pub(crate) fn arguments(&mut self, tool: &str) -> Value {
        let number = self.rng.below(40) + 1;
        match tool {
            "find_berth" => json!({"ship": self.ship(), "length": number + 100, "draught": 9.5}),
            "tide" => json!({"ship": self.ship(), "port": self.port(), "days": [1, number]}),
            _ => json!({"ship": self.ship(), "order": {"crane": number, "note": "\"slow\" \\ 慢"}}),
        }
    }

    pub(crate) fn result(&mut self, tool: &str) -> Value {
        let number = self.rng.below(60);
        match tool {
            "find_berth" => json!({"berth": number, "ship": self.ship(), "is_free": true}),
            "tide" => json!({"high_water": format!("06:{number:02}"), "metres": 3.25,
                "note": format!("as seen from the {}", self.ship())}),
            _ => json!({"ship": self.ship(), "cranes": [number, number + 1], "remark": null}),
        }
    }

    pub(crate) fn failure(&mut self) -> Value {
        json!({"error": format!("the crane driver of the {} is asleep", self.ship())})
    }
}

/// Divides a text into the pieces of a stream. A piece may begin or end within a word.
pub(crate) fn pieces(text: &str, length: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(length).map(|chunk| chunk.iter().collect()).collect()
}

/// Formats JSON with the fields of every object in alphabetical order.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields =
                fields.iter().map(|(name, value)| format!("{}:{}", json!(name), text(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        value => value.to_string(),
    }
}
