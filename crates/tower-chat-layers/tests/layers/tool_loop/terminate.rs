//! Tests tools that end the run.

use tower_chat::{ChatRequest, Message, Tools, layer::ToolLoopLayer, tool::ToolOutput};

use super::script::*;

fn tools(log: &Log) -> Tools {
    Tools::new()
        .with(log.tool(definition("log")))
        .with(constant("stop", ToolOutput::from("stopped").terminate()))
}

fn script() -> Script {
    let first = calls([("log", "1"), ("stop", ""), ("log", "2")]);
    Script::new([first, Message::assistant("never said")])
}

#[tokio::test]
async fn a_serial_batch_ends_with_the_tool_that_terminates_and_its_results_are_returned() {
    for request in both(&ChatRequest::user("hi")) {
        let (log, script) = (Log::default(), script());
        let answer = ask(&ToolLoopLayer::new(tools(&log)), &script, request).await.unwrap();
        assert_eq!((log.take(), script.calls()), (vec!["1".to_owned()], 1));
        assert_eq!(texts(&answer.messages)[1..], ["=ran 1 =stopped"]);
    }
}

#[tokio::test]
async fn a_concurrent_batch_runs_whole_before_it_ends_the_run() {
    for request in both(&ChatRequest::user("hi")) {
        let (log, script) = (Log::default(), script());
        let tool_loop = ToolLoopLayer::new(tools(&log)).concurrent(true);
        let answer = ask(&tool_loop, &script, request).await.unwrap();
        assert_eq!((log.take().len(), script.calls()), (2, 1));
        assert_eq!(texts(&answer.messages)[1..], ["=ran 1 =stopped =ran 2"]);
    }
}

#[tokio::test]
async fn messages_still_queued_when_a_tool_terminates_stay_with_the_handle() {
    let mut request = ChatRequest::user("hi");
    let handle = request.run_handle();
    let queueing = tower_chat::tool_fn(definition("stop"), |context| async move {
        context.queue(Message::user("for later"));
        Ok(ToolOutput::from("").terminate())
    });
    let script = Script::new([calls([("stop", "")])]);
    ask(&over(queueing), &script, request).await.unwrap();
    assert_eq!((script.calls(), handle.take_queued().len()), (1, 1));
}
