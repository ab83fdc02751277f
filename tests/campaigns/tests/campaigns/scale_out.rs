//! The campaign `scale-out` finds nothing, and everything that is planted.

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

/// What the campaign finds, which must be of this kind.
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
fn a_pooler_of_transactions() {
    finds_nothing(Scenario::Pgbouncer);
}

#[test]
fn two_servers() {
    finds_nothing(Scenario::TwoServers);
}

#[test]
fn a_replica_that_is_promoted() {
    finds_nothing(Scenario::ReplicaPromoted);
}

#[test]
fn slots_that_are_moved() {
    finds_nothing(Scenario::SlotMoved);
}

#[test]
fn replicas_of_a_cluster_that_take_over() {
    finds_nothing(Scenario::ClusterFailover);
}

#[test]
fn rates_of_one_server() {
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
fn statements_that_stay_prepared_are_found() {
    finds(Scenario::Pgbouncer, Plant::PreparedStatements, "a pooler sends statements");
}

#[test]
fn revisions_that_are_not_renewed_are_found() {
    finds(Scenario::ReplicaPromoted, Plant::NoRenewal, "a stale writer was accepted");
}

#[test]
fn a_failed_primary_that_comes_back_as_it_was_is_found() {
    finds(Scenario::ReplicaPromoted, Plant::Unfenced, "the failed primary has accepted");
}
