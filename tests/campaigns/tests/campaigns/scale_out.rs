//! Tests that the campaign `scale-out` succeeds without a planted fault, and finds every planted
//! fault.

use tower_chat_campaigns::{
    Failure,
    scale_out::{Arguments, Plant, Scenario, run},
};

fn finds_nothing(scenario: Scenario) {
    let arguments = Arguments { scenario: Some(scenario), ..Arguments::default() };
    match run(arguments) {
        Ok(figures) => println!("{figures}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Asserts that the campaign finds the planted fault, and that the failure contains this text.
fn finds(scenario: Scenario, plant: Plant, expected: &str) {
    let arguments =
        Arguments { scenario: Some(scenario), plant: Some(plant), ..Arguments::default() };
    match run(arguments) {
        Err(Failure::Found { what, .. }) => assert!(what.contains(expected), "{what}"),
        Err(failure) => panic!("{failure}"),
        Ok(figures) => panic!("nothing was found:\n{figures}"),
    }
}

#[test]
fn a_transaction_pooler_loses_nothing() {
    finds_nothing(Scenario::Pgbouncer);
}

#[test]
fn two_servers_lose_nothing() {
    finds_nothing(Scenario::TwoServers);
}

#[test]
fn a_promoted_replica_keeps_the_promises() {
    finds_nothing(Scenario::ReplicaPromoted);
}

#[test]
fn moved_slots_lose_nothing() {
    finds_nothing(Scenario::SlotMoved);
}

#[test]
fn a_cluster_failover_keeps_the_promises() {
    finds_nothing(Scenario::ClusterFailover);
}

#[test]
fn rates_of_one_server_are_measured() {
    finds_nothing(Scenario::Rates);
}

#[test]
fn a_write_that_is_acknowledged_and_not_sent_is_found() {
    finds(Scenario::SlotMoved, Plant::LostAppend, "was acknowledged as");
}

#[test]
fn a_writer_that_ignores_the_revision_is_found() {
    finds(Scenario::ReplicaPromoted, Plant::IgnoreRevision, "was acknowledged as");
}

#[test]
fn prepared_statements_behind_a_pooler_are_found() {
    finds(Scenario::Pgbouncer, Plant::PreparedStatements, "a pooler sent a prepared statement");
}

#[test]
fn incarnations_that_are_not_renewed_are_found() {
    finds(Scenario::ReplicaPromoted, Plant::NoRenewal, "a stale writer was accepted");
}

#[test]
fn a_failed_primary_that_restarts_as_a_primary_is_found() {
    finds(Scenario::ReplicaPromoted, Plant::Unfenced, "the failed primary has accepted");
}
