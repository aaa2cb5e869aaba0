//! The clients of the simulated broker. Each does one kind of work, writes down what it asked and what it was told, and
//! takes no answer for granted: what it can judge on the spot it judges, the rest is for the invariants.

mod auditor;
mod board;
mod client;
mod cursors;
mod fetcher;
mod founder;
mod idempotent;
mod library;
mod payload;
mod plain;
mod prober;
mod session;
mod subscriber;
mod topics;

pub use board::{Board, TopicInfo};
pub use client::{Actor, ClientInput, Environment, Phase};
pub use founder::TopicPlan;
pub use payload::read_batches;

use crate::history::ClientNo;
use crate::rng::Rng;
use crate::time::{SECOND, Time};
use lockgate_wire::{Error, Frame};

use client::{Client, Io};

/// One kind of work on a connection.
pub trait Role {
    /// The connection is there (again), or the time has come that was asked for.
    fn act(&mut self, io: &mut Io<'_>);
    /// An answer came.
    fn answered(&mut self, io: &mut Io<'_>, request: u64, answer: Result<Frame, Error>);
    /// A push came.
    fn pushed(&mut self, io: &mut Io<'_>, frame: Frame) {
        io.unexpected(format!("a push nobody asked for: {:?}", frame.op()));
    }
    /// The connection is gone; what was not answered never will be.
    fn lost(&mut self, io: &mut Io<'_>);
    /// What is left to be done once no new work is wanted, if anything is.
    fn waits_for(&self) -> Option<String>;
}

/// The oracle that reads everything back, beginning now.
pub fn audit(number: ClientNo, board: &Board, rng: Rng, now: Time) -> Box<dyn Actor> {
    Box::new(Client::new(number, Box::new(auditor::Auditor::new(board)), rng, now))
}

/// The oracles of a run. The first founds the topics that the others use.
pub fn cast(topics: Vec<TopicPlan>, rng: &mut Rng) -> Vec<Box<dyn Actor>> {
    let mut roles: Vec<Box<dyn Role>> = vec![Box::new(founder::Founder::new(topics))];
    for _ in 0..rng.within(1..=3) {
        roles.push(Box::new(idempotent::Idempotent::new(rng)));
    }
    for _ in 0..rng.within(1..=2) {
        roles.push(Box::new(plain::Plain::new(rng)));
    }
    for _ in 0..rng.within(1..=3) {
        roles.push(Box::new(subscriber::Subscriber::new(rng)));
    }
    for _ in 0..rng.within(1..=2) {
        roles.push(Box::<fetcher::Fetcher>::default());
    }
    roles.push(Box::<prober::Prober>::default());
    roles.push(Box::new(cursors::CursorKeeper::new(rng)));
    roles.push(Box::new(topics::TopicKeeper::new(rng)));
    let mut actors: Vec<Box<dyn Actor>> = Vec::new();
    for role in roles {
        let first_attempt = rng.below(SECOND / 2);
        actors.push(Box::new(Client::new(actors.len() as ClientNo, role, rng.fork(), first_attempt)));
    }
    for _ in 0..rng.within(0..=2) {
        actors.push(Box::new(library::LibraryClient::new(actors.len() as ClientNo, rng.fork())));
    }
    actors
}
