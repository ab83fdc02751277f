//! `tower-chat repair`.

use std::process::ExitCode;

use serde::Serialize;
use tower_chat_repair::{Repair, Repaired, plan_repair, repair as repair_store};

use crate::{
    arguments::RepairArguments,
    error::CliError,
    report::Report,
    verify::{Kind, write},
};

pub(crate) async fn repair(arguments: RepairArguments) -> Result<ExitCode, CliError> {
    let dry_run = arguments.dry_run;
    let store = match dry_run {
        true => arguments.store.open_to_read("repair").await?,
        false => arguments.store.open_to_change("repair").await?,
    };
    let mut output = Report::new(arguments.json);
    let mut report = |change| match change {
        Repair::Done(finding) if dry_run => write(&finding, Kind::ToRepair, &mut output),
        Repair::Done(finding) => write(&finding, Kind::Repaired, &mut output),
        Repair::Left(finding) => write(&finding, Kind::Left, &mut output),
        _ => {}
    };
    let target = store.target();
    let repaired = match dry_run {
        true => plan_repair(&target, &mut report).await?,
        false => repair_store(&target, &mut report).await?,
    };
    store.close().await?;
    let Repaired { repaired, left, .. } = repaired;
    let line = match (dry_run, repaired, left) {
        (_, 0, 0) => "nothing to repair".to_owned(),
        (true, ..) => format!("{repaired} to repair, {left} that cannot be repaired"),
        (false, ..) => format!("{repaired} repaired, {left} not repaired"),
    };
    output.write(&line, &Summary { kind: "summary", dry_run, repaired, left });
    output.finish()?;
    Ok(ExitCode::from(u8::from(left > 0 || (dry_run && repaired > 0))))
}

#[derive(Serialize)]
struct Summary {
    kind: &'static str,
    dry_run: bool,
    repaired: usize,
    left: usize,
}
