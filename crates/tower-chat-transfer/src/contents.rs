//! What a file has, and how it is read.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tower_chat_core::{
    ConversationKey,
    store::author::{RecordedResult, ToolRecord},
};

use crate::{
    Counts, FileError, Outcome, Step, TransferError,
    digest::Sum,
    line::{CompleteLine, ConversationLine, EndLine, FORMAT, Header, Line, VERSION},
    record::{Beginning, Record},
};

/// What a file of [`export`](crate::export()) has: every line of it was read and checked.
#[derive(Debug, Clone)]
pub struct ExportContents {
    counts: Counts,
    last: Option<(ConversationKey, Counts)>,
    whole_bytes: u64,
    sum: Sum,
    file_sum: Sum,
    is_complete: bool,
    lines: u64,
    /// The first lines of conversations that were abandoned.
    abandoned: Vec<u64>,
}

impl ExportContents {
    /// Reads a file to its end, a line in memory at a time.
    ///
    /// # Errors
    ///
    /// [`TransferError::File`], if a line is damaged. A file that is cut off is no error here: see
    /// [`is_complete`](Self::is_complete).
    pub async fn read<R: AsyncBufRead + Unpin>(reader: R) -> Result<Self, TransferError> {
        let mut lines = Lines::new(reader);
        let mut contents = Self {
            counts: Counts::default(),
            last: None,
            whole_bytes: 0,
            sum: Sum::default(),
            file_sum: Sum::default(),
            is_complete: false,
            lines: 0,
            abandoned: Vec::new(),
        };
        let (mut key, mut first_line) = (None, 0);
        while let Some(entry) = lines.next().await? {
            match entry {
                Entry::Header => contents.is_whole_at(&lines),
                Entry::Begins(begun, _) => (key, first_line) = (Some(begun), lines.line),
                Entry::Record(_) => {}
                Entry::Abandoned => {
                    contents.abandoned.push(first_line);
                    contents.is_whole_at(&lines);
                }
                Entry::Ends(counts) => {
                    contents.counts += &counts;
                    contents.last = key.take().map(|key| (key, counts));
                    contents.is_whole_at(&lines);
                }
                Entry::Complete => contents.is_complete = true,
            }
        }
        contents.lines = lines.line;
        contents.file_sum = lines.sum;
        Ok(contents)
    }

    fn is_whole_at<R>(&mut self, lines: &Lines<R>) {
        self.whole_bytes = lines.bytes;
        self.sum = lines.sum.clone();
    }

    /// What the conversations that are whole consist of.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many conversations are whole.
    pub fn conversations(&self) -> u64 {
        self.counts.conversations
    }

    /// The last conversation that is whole: an export goes on [after](crate::Selection::after) it.
    pub fn last(&self) -> Option<&ConversationKey> {
        self.last.as_ref().map(|(key, _)| key)
    }

    /// What an export has told, or would have told, of that conversation.
    pub fn last_step(&self) -> Option<Step> {
        self.last.as_ref().map(|(key, counts)| Step::new(key, Outcome::Exported, *counts))
    }

    /// How many bytes the file has up to there. An export that goes on cuts off what comes after
    /// them.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// Whether the file has its last line: only then it can be imported.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The SHA-256 of the file, as far as it was read, in hexadecimal digits.
    pub fn sha256(&self) -> String {
        self.file_sum.hex()
    }

    /// The number of the last line.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    pub(crate) fn sum(&self) -> &Sum {
        &self.sum
    }

    pub(crate) fn is_abandoned(&self, first_line: u64) -> bool {
        self.abandoned.binary_search(&first_line).is_ok()
    }
}

/// What a line says.
pub(crate) enum Entry {
    Header,
    Begins(ConversationKey, Box<Beginning>),
    Record(Record),
    Ends(Counts),
    Abandoned,
    Complete,
}

/// The lines of a file, each checked against those before it.
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The number of the last line that was read.
    pub(crate) line: u64,
    bytes: u64,
    sum: Sum,
    conversations: u64,
    section: Option<Section>,
    is_complete: bool,
}

/// The conversation that is read.
struct Section {
    first_line: u64,
    sum: Sum,
    counts: Counts,
    /// The number of the next message.
    next: u64,
    visible: u64,
    pruned: u64,
    /// How many runs the conversation says it had.
    runs: u64,
    /// How many messages, runs and rows of the record it has.
    records: u64,
    is_staged: bool,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            line: 0,
            bytes: 0,
            sum: Sum::default(),
            conversations: 0,
            section: None,
            is_complete: false,
        }
    }

    /// What the next line says; `None` after the last that is whole.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, TransferError> {
        self.buffer.clear();
        self.reader.read_until(b'\n', &mut self.buffer).await.map_err(TransferError::reading)?;
        let is_whole = self.buffer.last() == Some(&b'\n');
        if !is_whole && self.line > 0 && !self.is_complete {
            return Ok(None);
        }
        if self.buffer.is_empty() && self.is_complete {
            return Ok(None);
        }
        self.line += 1;
        let entry = self.check(is_whole)?;
        self.sum.add(&self.buffer);
        self.bytes += self.buffer.len() as u64;
        Ok(Some(entry))
    }

    fn check(&mut self, is_whole: bool) -> Result<Entry, FileError> {
        let line = self.line;
        if line == 1 {
            return self.check_header(is_whole);
        }
        if self.is_complete {
            return Err(FileError::damaged(line, "there is more after the line that completes it"));
        }
        let read = serde_json::from_slice(&self.buffer);
        let read: Line = read.map_err(|error| FileError::damaged(line, error))?;
        let entry = self.check_line(read).map_err(|reason| FileError::damaged(line, reason))?;
        if let Some(section) = &mut self.section {
            section.sum.add(&self.buffer);
        }
        Ok(entry)
    }

    fn check_header(&self, is_whole: bool) -> Result<Entry, FileError> {
        let header: Header =
            serde_json::from_slice(&self.buffer).map_err(|_| FileError::NotAnExport)?;
        let Header { format, version } = header;
        match version {
            _ if format != FORMAT || !is_whole => Err(FileError::NotAnExport),
            VERSION => Ok(Entry::Header),
            version => Err(FileError::UnknownVersion { version, newest: VERSION }),
        }
    }

    fn check_line(&mut self, line: Line) -> Result<Entry, String> {
        match (line, &mut self.section) {
            (Line::Conversation(line), None) => self.begin(*line),
            (Line::Complete(line), None) => self.complete(&line),
            (Line::Run(line), Some(section)) => section.take(line.read()?),
            (Line::Message(line), Some(section)) => section.take(line.read()?),
            (Line::Tool(line), Some(section)) => section.take(line.read()?),
            (Line::OpenRun(line), Some(section)) => section.take(line.read(section.visible)?),
            (Line::End(line), Some(_)) => self.end(&line),
            (Line::Abandoned(_), Some(_)) => {
                self.section = None;
                Ok(Entry::Abandoned)
            }
            (Line::Conversation(_) | Line::Complete(_), Some(_)) => {
                Err("the conversation before it has no end".to_owned())
            }
            (_, None) => Err("it belongs to no conversation".to_owned()),
        }
    }

    fn begin(&mut self, line: ConversationLine) -> Result<Entry, String> {
        let key = line.key();
        let beginning = line.read()?;
        self.section = Some(Section {
            first_line: self.line,
            sum: Sum::default(),
            counts: Counts::one(),
            next: beginning.pruned.saturating_add(1),
            visible: beginning.visible,
            pruned: beginning.pruned,
            runs: beginning.runs,
            records: 0,
            is_staged: false,
        });
        Ok(Entry::Begins(key, Box::new(beginning)))
    }

    fn end(&mut self, line: &EndLine) -> Result<Entry, String> {
        let Some(section) = self.section.take() else { return Err("nothing ends here".to_owned()) };
        let Section { first_line, sum, counts, next, visible, pruned, runs, records, .. } = section;
        if next <= visible {
            return Err(format!("message {next} of the conversation is missing before it"));
        }
        // Every run has at least one of the messages, pruned or not, or a line of its own.
        if runs > pruned.saturating_add(records) {
            return Err(format!("the conversation cannot have had {runs} runs"));
        }
        if *line != EndLine::new(&counts, sum.hex()) {
            let last_line = self.line - 1;
            return Err(format!("lines {first_line} to {last_line} are not what was exported"));
        }
        self.conversations += 1;
        Ok(Entry::Ends(counts))
    }

    fn complete(&mut self, line: &CompleteLine) -> Result<Entry, String> {
        let whole = CompleteLine { conversations: self.conversations, sha256: self.sum.hex() };
        if *line != whole {
            return Err(format!("the {} lines before it are not what was exported", self.line - 1));
        }
        self.is_complete = true;
        Ok(Entry::Complete)
    }
}

impl Section {
    fn take(&mut self, record: Record) -> Result<Entry, String> {
        match &record {
            Record::Run(_) => {}
            Record::Tool { row, .. } => self.check_row(row)?,
            Record::Message { number, is_staged, .. } => {
                if *number != self.next {
                    return Err(format!("message {} is missing before it", self.next));
                }
                if *is_staged != self.is_staged || (!is_staged && *number > self.visible) {
                    return Err(format!("message {number} does not belong here"));
                }
                self.next = self.next.saturating_add(1);
            }
            Record::OpenRun(_) => {
                if self.next <= self.visible {
                    return Err(format!("message {} is missing before it", self.next));
                }
                self.is_staged = true;
            }
        }
        record.count(&mut self.counts);
        self.records = self.records.saturating_add(1);
        Ok(Entry::Record(record))
    }

    /// A row is complete with the messages before it.
    fn check_row(&self, row: &ToolRecord) -> Result<(), String> {
        let result = match &row.result {
            RecordedResult::InMessage(at) => at.sequence,
            RecordedResult::None | RecordedResult::Apart(_) => row.call.sequence,
        };
        match [row.call.sequence, result].into_iter().find(|number| *number >= self.next) {
            None => Ok(()),
            Some(number) => Err(format!("message {number} of the tool call is missing before it")),
        }
    }
}
