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
fn no_acknowledged_write_is_lost_behind_a_transaction_pooler() {
    finds_nothing(Scenario::Pgbouncer);
}

#[test]
fn no_acknowledged_write_is_lost_with_two_servers() {
    finds_nothing(Scenario::TwoServers);
}

#[test]
fn a_promoted_replica_keeps_the_guarantees_of_the_store() {
    finds_nothing(Scenario::ReplicaPromoted);
}

#[test]
fn no_acknowledged_write_is_lost_when_cluster_slots_move() {
    finds_nothing(Scenario::SlotMoved);
}

#[test]
fn a_cluster_failover_keeps_the_guarantees_of_the_store() {
    finds_nothing(Scenario::ClusterFailover);
}

#[test]
fn the_write_rates_of_one_server_are_measured() {
    finds_nothing(Scenario::Rates);
}

#[test]
fn the_campaign_finds_a_write_that_is_acknowledged_but_not_sent() {
    finds(Scenario::SlotMoved, Plant::LostAppend, "was acknowledged as");
}

#[test]
fn the_campaign_finds_a_writer_that_ignores_the_revision() {
    finds(Scenario::ReplicaPromoted, Plant::IgnoreRevision, "was acknowledged as");
}

#[test]
fn the_campaign_finds_prepared_statements_behind_a_pooler() {
    finds(Scenario::Pgbouncer, Plant::PreparedStatements, "a pooler sent a prepared statement");
}

#[test]
fn the_campaign_finds_incarnations_that_are_not_renewed() {
    finds(Scenario::ReplicaPromoted, Plant::NoRenewal, "a stale writer was accepted");
}

#[test]
fn the_campaign_finds_a_failed_primary_that_restarts_as_a_primary() {
    finds(Scenario::ReplicaPromoted, Plant::Unfenced, "the failed primary has accepted");
}
