//! Clients in the world: when they act, what they want done, how their connections begin.

use super::World;
use super::queue::{Happening, LinkNo, Toward};
use crate::oracle::{ClientInput, Environment};
use crate::time::{MS, Time};

use super::link::{Link, LinkSpeed};

impl World {
    pub(super) fn client_wakes(&mut self, client: usize) {
        if self.client_wakes[client] != self.now {
            return;
        }
        self.client_wakes[client] = Time::MAX;
        self.tell_client(client, ClientInput::Wake);
    }

    /// Gives a client its input and carries out what it wants.
    pub(super) fn tell_client(&mut self, client: usize, input: ClientInput) {
        let mut environment = Environment {
            now: self.now,
            wall_ms: self.wall_ms(),
            phase: self.oracle_phase(client),
            is_rush: self.is_rush(),
            board: &mut self.board,
            events: &mut self.events,
        };
        let actor = &mut self.clients[client];
        actor.handle(input, &mut environment);
        let (closes, outgoing) = (actor.takes_close(), actor.takes_outgoing());
        if let Some(link) = self.client_links[client] {
            if let Some(stream) = self.links.get_mut(&link) {
                outgoing.into_iter().for_each(|bytes| stream.to_node.send(bytes));
            }
            self.pump(link, Toward::Node);
            if closes {
                self.client_closes(link);
            }
        }
        if self.clients[client].takes_connect(self.now) {
            self.connect(client);
        }
        self.plan_wake(client);
    }

    pub(super) fn plan_wake(&mut self, client: usize) {
        let at = self.clients[client].next_wake().max(self.now);
        if at < Time::MAX && at < self.client_wakes[client] {
            self.client_wakes[client] = at;
            self.queue.push(at, Happening::ClientWakes { client });
        }
    }

    fn connect(&mut self, client: usize) {
        let link = self.next_link;
        self.next_link += 1;
        let speed = self.plan.link.unwrap_or_else(|| LinkSpeed::draw(&mut self.rng));
        let reaches_at = self.now + speed.delay(&mut self.rng);
        self.links.insert(link, Link::new(client, speed));
        self.client_links[client] = Some(link);
        self.queue.push(reaches_at, Happening::Connects { link });
    }

    /// The client learns whether its attempt was taken.
    pub(super) fn connected(&mut self, number: LinkNo) {
        let Some(link) = self.links.get(&number) else { return };
        if link.client_is_gone {
            return;
        }
        let (client, life) = (link.client, self.node.life);
        if link.node_is_gone || link.process != life.process {
            return self.client_loses(number);
        }
        self.tell_client(client, ClientInput::Connected { connection: number, life });
    }

    /// The client learns that its connection is no more.
    pub(super) fn client_loses(&mut self, number: LinkNo) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if std::mem::replace(&mut link.client_is_gone, true) {
            return;
        }
        let client = link.client;
        link.to_client.die();
        self.client_links[client] = None;
        self.forget_if_gone(number);
        self.tell_client(client, ClientInput::Lost);
    }

    /// The client closes its side and forgets it.
    fn client_closes(&mut self, number: LinkNo) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.client_is_gone = true;
        let client = link.client;
        let ends_at = link.to_node.end(self.now, &mut self.rng);
        link.to_client.die();
        self.client_links[client] = None;
        self.queue.push(ends_at, Happening::Arrives { link: number, toward: Toward::Node });
        self.forget_if_gone(number);
    }

    /// A client stops reading for a while.
    pub(super) fn pause_client(&mut self, client: usize) {
        let pause = self.rng.magnitude(10 * MS..=8000 * MS);
        self.client_pauses[client] = self.now + pause;
    }
}
