//! Reading and checking a file.
//!
//! The lines of a conversation may end with a line `abandoned`, which an import ignores together
//! with all lines of the conversation. The messages of an open run (*staged* messages) follow the
//! other, *visible* messages.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tower_chat_core::{
    ConversationKey,
    store::{
        HistorySummary,
        author::{RecordedResult, ToolRecord},
    },
};

use crate::{
    Counts, FileError, TransferError, TransferOutcome, TransferStep,
    digest::Sum,
    line::{CompleteLine, ConversationLine, EndLine, FORMAT, Header, Line, VERSION},
    record::{Beginning, Record},
};

/// A summary of an exported file, all of whose lines were read and checked.
///
/// See [`export`](crate::export()).
#[derive(Debug, Clone)]
pub struct ExportContents {
    /// The sum of the counts of all complete conversations.
    counts: Counts,
    /// The last complete conversation in the file, with its counts.
    last: Option<(ConversationKey, Counts)>,
    whole_bytes: u64,
    /// The digest of the first `whole_bytes` bytes.
    sum: Sum,
    /// The digest of all lines.
    file_sum: Sum,
    is_complete: bool,
    lines: u64,
    /// The line numbers, from 1, at which abandoned conversations begin, in ascending order.
    abandoned: Vec<u64>,
}

impl ExportContents {
    /// Reads a file to its end, with one line in memory at a time.
    ///
    /// # Errors
    ///
    /// Returns [`TransferError::File`] if the first line is incomplete or is not the first line of
    /// an export, or if a line is damaged. Returns [`TransferError::Io`] if the file cannot be
    /// read. A file that ends too early, but not within its first line, is not an error: see
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
                Entry::Header => contents.mark_whole_at(&lines),
                Entry::Begins(begun, _) => (key, first_line) = (Some(begun), lines.line),
                Entry::Record(_) => {}
                Entry::Abandoned => {
                    contents.abandoned.push(first_line);
                    contents.mark_whole_at(&lines);
                }
                Entry::Ends(counts) => {
                    contents.counts += &counts;
                    contents.last = key.take().map(|key| (key, counts));
                    contents.mark_whole_at(&lines);
                }
                Entry::Complete => contents.is_complete = true,
            }
        }
        contents.lines = lines.line;
        contents.file_sum = lines.sum;
        Ok(contents)
    }

    /// Records that an export could continue the file after the most recently read line.
    fn mark_whole_at<R>(&mut self, lines: &Lines<R>) {
        self.whole_bytes = lines.bytes;
        self.sum = lines.sum.clone();
    }

    /// Returns the sum of the counts of all complete conversations.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of complete conversations.
    pub fn conversations(&self) -> u64 {
        self.counts.conversations
    }

    /// Returns the last complete conversation in the file. To continue the export, select the
    /// conversations [after](crate::Selection::after) this one.
    pub fn last(&self) -> Option<&ConversationKey> {
        self.last.as_ref().map(|(key, _)| key)
    }

    /// Returns the step of the [last complete conversation](Self::last), without its open run. The
    /// export may have stopped before it reported this step.
    pub fn last_step(&self) -> Option<TransferStep> {
        self.last
            .as_ref()
            .map(|(key, counts)| TransferStep::new(key, TransferOutcome::Exported, *counts))
    }

    /// Returns the number of bytes up to the end of the last conversation that is complete or
    /// abandoned. If there is no such conversation, this is the length of the first line. A caller
    /// that continues the export must first truncate the file to this size.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// Returns whether the file has its last line, `complete`. An import refuses a file without
    /// this line.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the SHA-256 of all complete lines of the file, in hexadecimal digits.
    pub fn sha256(&self) -> String {
        self.file_sum.hex()
    }

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

/// The content of a line.
pub(crate) enum Entry {
    Header,
    Begins(ConversationKey, Box<Beginning>),
    Record(Record),
    Ends(Counts),
    Abandoned,
    Complete,
}

/// Reads a file line by line, and checks each line against the lines before it.
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The number of the most recently read line, counted from 1; 0 before the first line was read.
    pub(crate) line: u64,
    /// The size of all lines that were read, in bytes.
    bytes: u64,
    /// The digest of all lines that were read.
    sum: Sum,
    /// The number of complete conversations that were read.
    conversations: u64,
    section: Option<Section>,
    is_complete: bool,
}

/// The state of the conversation that is being read.
struct Section {
    /// The number of the conversation's first line in the file.
    first_line: u64,
    sum: Sum,
    counts: Counts,
    /// The expected sequence number of the next message.
    next: u64,
    /// The number of the last visible message that the conversation's first line states.
    visible: u64,
    /// The number of pruned (deleted) messages that the first line states.
    pruned: u64,
    /// The number of runs that the first line states.
    runs: u64,
    /// The number of records that were read: runs, messages, rows, summaries, and the open run.
    records: u64,
    /// The sequence number of the last message that the previous summary covers; 0 before the first
    /// summary.
    covered: u64,
    /// Whether the open run was read. The messages after the line of the open run are staged.
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

    /// Returns the content of the next complete line, if there is one.
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
            return Err(FileError::damaged(
                line,
                "there are lines after the line that completes the export",
            ));
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
            (Line::Summary(line), Some(section)) => section.take(line.read()?),
            (Line::OpenRun(line), Some(section)) => section.take(line.read(section.visible)?),
            (Line::End(line), Some(_)) => self.end(&line),
            (Line::Abandoned(_), Some(_)) => {
                self.section = None;
                Ok(Entry::Abandoned)
            }
            (Line::Conversation(_) | Line::Complete(_), Some(_)) => {
                Err("the conversation before this line has no end".to_owned())
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
            covered: 0,
            is_staged: false,
        });
        Ok(Entry::Begins(key, Box::new(beginning)))
    }

    fn end(&mut self, line: &EndLine) -> Result<Entry, String> {
        let Some(section) = self.section.take() else {
            return Err("no conversation ends here".to_owned());
        };
        let Section { first_line, sum, counts, next, visible, pruned, runs, records, .. } = section;
        if next <= visible {
            return Err(format!("message {next} of the conversation is missing before it"));
        }
        // Each run has a line `run`, or a message, which may have been pruned.
        if runs > pruned.saturating_add(records) {
            return Err(format!(
                "the number of runs, {runs}, is larger than that of its messages and run lines"
            ));
        }
        if *line != EndLine::new(&counts, sum.hex()) {
            let last_line = self.line - 1;
            return Err(format!(
                "lines {first_line} to {last_line} differ from the exported lines"
            ));
        }
        self.conversations += 1;
        Ok(Entry::Ends(counts))
    }

    fn complete(&mut self, line: &CompleteLine) -> Result<Entry, String> {
        let whole = CompleteLine { conversations: self.conversations, sha256: self.sum.hex() };
        if *line != whole {
            return Err(format!("lines 1 to {} differ from the exported lines", self.line - 1));
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
                    return Err(format!("message {number} is at the wrong position"));
                }
                self.next = self.next.saturating_add(1);
            }
            Record::Summary(summary) => self.check_summary(summary)?,
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

    /// Checks that a summary covers visible messages that were read before it, and more of them than
    /// the previous summary. The messages that it covers may have been pruned.
    fn check_summary(&mut self, summary: &HistorySummary) -> Result<(), String> {
        let HistorySummary { covers_to, .. } = *summary;
        if self.is_staged || covers_to <= self.covered {
            return Err(format!("the summary up to message {covers_to} is at the wrong position"));
        }
        if covers_to > self.visible {
            return Err(format!(
                "the summary up to message {covers_to} ends after the last message"
            ));
        }
        if self.next <= self.visible {
            return Err(format!("message {} is missing before it", self.next));
        }
        self.covered = covers_to;
        Ok(())
    }

    /// Checks that the messages of a row's call and result were read before the row.
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
