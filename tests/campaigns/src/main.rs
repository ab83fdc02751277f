//! `tower-chat-campaigns NAME`: runs one campaign, and prints its figures or the broken rule.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tower_chat_campaigns::{
    Failure, Figures, corruption, deliveries, histories, play, power_cuts, scale_out,
    server_crashes, soak, transfers,
};

/// Searches for lost, duplicated or damaged messages
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    Play(play::Arguments),
    #[command(flatten)]
    Campaign(Campaign),
}

#[derive(Subcommand)]
enum Campaign {
    /// Flips bits of SQLite files, their logs and exports, and compares the content with the stored
    /// content
    Corruption(corruption::Arguments),
    Deliveries(deliveries::Arguments),
    #[command(hide = true)]
    DeliveriesWorker(deliveries::WorkerArguments),
    Histories(histories::Arguments),
    #[command(hide = true)]
    HistoriesClient(histories::ClientArguments),
    /// Simulates power loss at random moments, and checks the content of a SQLite store
    PowerCuts(power_cuts::Arguments),
    #[command(hide = true)]
    PowerCutsWorkload(power_cuts::WorkloadArguments),
    ServerCrashes(server_crashes::Arguments),
    Soak(soak::Arguments),
    #[command(hide = true)]
    SoakWorker(soak::WorkerArguments),
    ScaleOut(scale_out::Arguments),
    Transfers(transfers::Arguments),
    #[command(hide = true)]
    TransfersWorker(transfers::WorkerArguments),
}

fn main() -> ExitCode {
    let campaign = match Arguments::parse().program {
        Program::Play(arguments) => return play::run(arguments),
        Program::Campaign(campaign) => campaign,
    };
    match run(campaign) {
        Ok(figures) => {
            print!("{figures}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            let mut source = failure.source();
            while let Some(cause) = source {
                eprintln!("  caused by: {cause}");
                source = cause.source();
            }
            match failure {
                Failure::Found { .. } => ExitCode::from(1),
                Failure::CannotRun { .. } => ExitCode::from(2),
            }
        }
    }
}

fn run(campaign: Campaign) -> Result<Figures, Failure> {
    match campaign {
        Campaign::Corruption(arguments) => corruption::run(arguments),
        Campaign::Deliveries(arguments) => deliveries::run(&arguments),
        Campaign::DeliveriesWorker(arguments) => {
            deliveries::work(&arguments).map(|()| Figures::default())
        }
        Campaign::Histories(arguments) => histories::run(arguments),
        Campaign::HistoriesClient(arguments) => {
            histories::serve(arguments).map(|()| Figures::default())
        }
        Campaign::PowerCuts(arguments) => power_cuts::run(arguments),
        Campaign::PowerCutsWorkload(arguments) => power_cuts::run_workload(&arguments),
        Campaign::ServerCrashes(arguments) => server_crashes::run(arguments),
        Campaign::Soak(arguments) => soak::run(arguments),
        Campaign::SoakWorker(arguments) => soak::work(arguments),
        Campaign::ScaleOut(arguments) => scale_out::run(arguments),
        Campaign::Transfers(arguments) => transfers::run(&arguments),
        Campaign::TransfersWorker(arguments) => {
            transfers::work(&arguments).map(|()| Figures::default())
        }
    }
}
