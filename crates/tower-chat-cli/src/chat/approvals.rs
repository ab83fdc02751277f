//! Asks the user for decisions about calls that wait for approval.

use tower_chat::{
    Tools,
    tool::{ApprovalRequest, ApprovalResponse},
};

use super::{
    input::Input, interrupts::Interrupts, screen::Screen, servers::Approve, stored::call_line,
};

/// The result that the model receives for a call that the user has rejected.
const REFUSED: &str = "The user has refused this call.";

/// With `--approve never`, the result that the model receives for a call that needs approval.
const NOT_ALLOWED: &str = "This call needs approval, and no calls are approved in this session.";

/// The outcome of asking the user about the calls of one answer of the model.
#[derive(Debug)]
pub(super) enum Decision {
    /// The user has decided about each call.
    Made(Vec<ApprovalResponse>),
    /// The user has not decided, and the calls continue to wait for approval.
    Postponed,
    /// The input has ended, and the calls continue to wait for approval.
    InputEnded,
}

/// Asks the user about calls that wait for approval.
pub(super) struct Approver<'a> {
    pub(super) approve: Approve,
    pub(super) tools: &'a Tools,
    pub(super) screen: &'a mut Screen,
    pub(super) input: &'a mut Input,
    pub(super) interrupts: &'a mut Interrupts,
}

impl Approver<'_> {
    /// Asks for decisions about the calls of one answer of the model.
    pub(super) async fn decide(
        &mut self,
        waiting: &[ApprovalRequest],
    ) -> std::io::Result<Decision> {
        let missing = waiting.iter().find(|request| self.tools.get(&request.call.name).is_none());
        if let Some(request) = missing {
            let name = &request.call.name;
            self.screen.note(&format!(
                "a call of the tool {name} waits for approval, and no server of this session has the \
                 tool: add its --mcp or --mcp-url to decide"
            ));
            return Ok(Decision::Postponed);
        }
        let mut decisions = Vec::new();
        for request in waiting {
            let decision = match self.approve {
                _ if !request.required => Some(request.approve()),
                Approve::Always => Some(request.approve()),
                Approve::Never => Some(self.refuse(request)),
                Approve::Ask | Approve::AskAll => match self.ask(request).await? {
                    Ok(decision) => Some(decision),
                    Err(other) => return Ok(other),
                },
            };
            decisions.extend(decision);
        }
        Ok(Decision::Made(decisions))
    }

    fn refuse(&mut self, request: &ApprovalRequest) -> ApprovalResponse {
        let call = call_line(&request.call.name, &request.call.arguments);
        self.screen.note(&format!("{call} is refused (--approve never)"));
        request.reject(NOT_ALLOWED)
    }

    /// Asks the user about one call. Without a decision, returns why the chat stops asking.
    async fn ask(
        &mut self,
        request: &ApprovalRequest,
    ) -> std::io::Result<Result<ApprovalResponse, Decision>> {
        // The call is printed completely, because the decision applies to all of its arguments.
        let call = format!("* {} {}", request.call.name, request.call.arguments);
        if !self.input.is_terminal() {
            self.screen.note(&format!(
                "{call} waits for approval, and there is no terminal for the question: continue \
                 this conversation on a terminal, or give --approve always or never"
            ));
            return Ok(Err(Decision::Postponed));
        }
        loop {
            let answer = tokio::select! {
                biased;
                () = self.interrupts.next() => None,
                answer = answer(self.input, self.screen, &call) => Some(answer),
            };
            match answer {
                None => {
                    self.screen.note("");
                    self.screen.note(
                        "the call still waits; the question is repeated after the next message",
                    );
                    return Ok(Err(Decision::Postponed));
                }
                Some(None) => return Ok(Err(Decision::InputEnded)),
                Some(Some(answer)) => match answer? {
                    Answer::Yes => return Ok(Ok(request.approve())),
                    Answer::No => return Ok(Ok(request.reject(REFUSED))),
                    Answer::Pasted => self.screen.note("pasted text is not an answer: type y or n"),
                    Answer::Unclear => {}
                },
            }
        }
    }
}

/// The answer of the user to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// Pasted text, or a line that other lines followed without a pause.
    Pasted,
    Unclear,
}

/// Asks whether a call may run. Returns `None` if the input has ended.
///
/// Input that arrived before the question is dropped, because the user typed it for another purpose
/// while the model answered. Pasted text is not accepted as an answer.
async fn answer(
    input: &mut Input,
    screen: &mut Screen,
    call: &str,
) -> Option<std::io::Result<Answer>> {
    screen.note(call);
    input.drop_waiting().await;
    screen.ask("may it run? [y/n] ");
    let line = match input.next().await? {
        Ok(line) => line,
        Err(error) => return Some(Err(error)),
    };
    Some(Ok(match line.text.trim().to_lowercase().as_str() {
        _ if line.is_pasted => Answer::Pasted,
        "y" | "yes" if input.has_more_at_once().await => Answer::Pasted,
        "y" | "yes" => Answer::Yes,
        "n" | "no" => Answer::No,
        _ => Answer::Unclear,
    }))
}
