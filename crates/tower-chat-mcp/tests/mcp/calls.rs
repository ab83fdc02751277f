//! Tests of successful calls: their messages in the history, and their rows in the record.

use tower_chat::{
    Part, Role,
    message::{Media, MediaSource},
    tool::{SharedTools, ToolStatus},
};

use super::*;

#[tokio::test]
async fn the_answers_of_the_server_are_stored_in_the_history_and_in_the_record() {
    for mode in BOTH_MODES {
        let client = connect(&[]).await;
        let script = vec![
            calls([
                ("town_weather", r#"{"city": "Paris"}"#),
                ("town_fail", ""),
                ("town_picture_of", "{}"),
            ]),
            Step::text("It rains."),
        ];
        let tools = McpTools::new(&client).with_prefix("town.");
        let agent = Agent::new(&tools, mode, script).await;
        assert_eq!(agent.ask("Which weather?").await.unwrap().text(), "It rains.");

        let stored = agent.stored_messages().await;
        let roles: Vec<Role> = stored.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant], "{mode:?}");
        let results: Vec<_> = stored[2].results().collect();
        let rain = [Part::text("Rain in Paris."), Part::text(r#"{"degrees":7}"#)];
        assert_eq!((results[0].content.as_slice(), results[0].is_error), (&rain[..], false));
        assert_eq!(results[1].content, [Part::text("There is no such city.")]);
        assert!(results[1].is_error);
        let picture = Media::new("image/png", MediaSource::Base64("aGk=".to_owned()));
        assert_eq!(results[2].content, [Part::Media(picture)]);

        let record = agent.record().await;
        let rows: Vec<_> =
            record.iter().map(|call| (call.name.as_str(), call.status, call.sequence)).collect();
        let expected = [
            ("town_weather", ToolStatus::Ok, 2),
            ("town_fail", ToolStatus::Error, 2),
            ("town_picture_of", ToolStatus::Ok, 2),
        ];
        assert_eq!(rows, expected, "{mode:?}");
        assert_eq!(record[0].arguments, r#"{"city": "Paris"}"#);
        assert_eq!(record[0].result.as_ref(), Some(results[0]));
        assert_eq!(record[1].error.as_deref(), Some("There is no such city."));

        let shown = &agent.model.requests()[1];
        let last = shown.messages().last().unwrap();
        assert_eq!(last.results().collect::<Vec<_>>(), results);
        assert_eq!(shown.options.tools.len(), 7);
    }
}

#[tokio::test]
async fn arguments_that_are_not_an_object_are_not_sent_to_the_server() {
    for arguments in ["[1]", "null", r#"{"city": "Pa"#] {
        let client = connect(&[]).await;
        let script = vec![calls([("exit", arguments)]), calls([("weather", "")]), Step::text("ok")];
        let agent = Agent::new(&McpTools::new(&client), BOTH_MODES[1], script).await;
        assert_eq!(agent.ask("hi").await.unwrap().text(), "ok");
        let record = agent.record().await;
        let statuses: Vec<_> = record.iter().map(|call| call.status).collect();
        assert_eq!(statuses, [ToolStatus::RejectedArguments, ToolStatus::Ok], "{arguments}");
        let result = record[0].result.as_ref().unwrap();
        assert!(result.is_error && result.text().contains("must be a JSON object"), "{result:?}");
        assert_eq!(record[0].arguments, arguments);
    }
}

#[tokio::test]
async fn a_call_of_an_unknown_tool_is_not_sent_to_the_server() {
    let client = connect(&[]).await;
    let script = vec![calls([("nobody", "{}"), ("weather", "{}")]), Step::text("ok")];
    let agent = Agent::new(&McpTools::new(&client), BOTH_MODES[0], script).await;
    agent.ask("hi").await.unwrap();
    let record = agent.record().await;
    let statuses: Vec<_> = record.iter().map(|call| call.status).collect();
    assert_eq!(statuses, [ToolStatus::UnknownTool, ToolStatus::Ok]);
}

#[tokio::test]
async fn a_call_that_needs_approval_is_sent_to_the_server_after_the_approval() {
    for mode in BOTH_MODES {
        let client = connect(&[]).await;
        let script = vec![calls([("refuse", "{}"), ("weather", "{}")]), Step::text("ok")];
        let tools = McpTools::new(&client).needs_approval(|tool| !tool.hints().read_only);
        let agent = Agent::new(&tools, mode, script).await;
        let answer = agent.ask("hi").await.unwrap();
        let waiting: Vec<_> = answer.approval_requests().collect();
        let required: Vec<bool> = waiting.iter().map(|request| request.required).collect();
        assert_eq!(required, [true, false]);
        let statuses = async || -> Vec<ToolStatus> {
            agent.record().await.iter().map(|call| call.status).collect()
        };
        assert_eq!(statuses().await, [ToolStatus::PendingApproval; 2], "{mode:?}");

        let approval = waiting.iter().map(|request| request.approve().into()).collect();
        let request = ChatRequest::new(Message::new(Role::User, approval));
        assert_eq!(agent.send(request).await.unwrap().text(), "ok");
        assert_eq!(statuses().await, [ToolStatus::Error, ToolStatus::Ok], "{mode:?}");
    }
}

#[tokio::test]
async fn the_next_service_call_uses_a_new_list_of_tools() {
    let (client, other) = (connect(&[]).await, connect(&[]).await);
    let shared = SharedTools::new(McpTools::new(&client).add_to(Tools::new()).await.unwrap());
    let model =
        ScriptedModel::new([Step::text("one"), calls([("new_weather", "")]), Step::text("two")]);
    let mut pipeline = ChatPipeline::builder(model.clone()).tools(shared.clone()).build().unwrap();
    let mut ask = async || {
        let response = pipeline.ready().await.unwrap().call(ChatRequest::user("hi")).await.unwrap();
        response.collect().await.unwrap().text()
    };
    assert_eq!(ask().await, "one");
    let listed = McpTools::new(&other).with_prefix("new_").add_to(Tools::new()).await.unwrap();
    shared.set(listed);
    assert_eq!(ask().await, "two");
    let requests = model.requests();
    let first = |index: usize| requests[index].options.tools[0].name.as_str();
    assert_eq!((first(0), first(1)), ("weather", "new_weather"));
    let result = requests[2].messages().last().unwrap().results().next().unwrap().text();
    assert!(result.starts_with("Rain in nowhere."), "{result}");
}
