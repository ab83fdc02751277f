//! Every recorded file with an exchange of this crate's wires is asserted on, whatever its folder.

use std::collections::BTreeMap;

use crate::cassettes;

#[derive(Debug, Default)]
struct Count {
    files: usize,
    chat: usize,
    responses: usize,
    elsewhere: usize,
}

/// The recorded tests of both wires play every exchange of a file that has one of theirs; here it is
/// said how many files of each folder those are. An address of no known API fails the reading.
#[test]
fn files_of_other_wires_are_counted_by_folder() {
    let Some(cassettes) = cassettes::all() else { return };
    let mut folders: BTreeMap<&str, Count> = BTreeMap::new();
    for file in &cassettes {
        let count = folders.entry(&file.folder).or_default();
        let of_chat = cassettes::chat(file).next().is_some();
        let of_responses = cassettes::responses(file).next().is_some();
        count.files += 1;
        count.chat += usize::from(of_chat);
        count.responses += usize::from(of_responses && !of_chat);
        count.elsewhere += usize::from(!of_chat && !of_responses);
    }
    println!("folder                      files  chat  responses  elsewhere");
    for (folder, Count { files, chat, responses, elsewhere }) in &folders {
        println!("{folder:26}  {files:5}  {chat:4}  {responses:9}  {elsewhere:9}");
        assert_eq!(*files, chat + responses + elsewhere);
    }
}
