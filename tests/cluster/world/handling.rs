//! Operations of tests on a server of a simulated cluster, and checks of what servers tell about the assembly.

use basalt_commands::cluster::Millis;
use basalt_commands::cluster::assembly::{NoticeStage, Stage};
use basalt_commands::cluster::change::ClusterChange;
use basalt_commands::cluster::packet::{Body, Extension, Packet};
use basalt_commands::cluster::settings::ClusterSettings;

use super::{Event, World};

/// Milliseconds between two looks at the seeds.
const SEEK_EVERY: Millis = 1_000;

impl World {
    /// Checks that the disk has what a server tells about the assembly, before it tells it.
    pub(super) fn note_notice(&mut self, at: usize, packet: &Packet) {
        let (Body::Ping(news) | Body::Pong(news) | Body::Meet(news)) = &packet.body else {
            return;
        };
        let notice = news
            .extensions
            .iter()
            .find_map(|extension| match extension {
                Extension::Assembly(notice) => Some(notice),
                _ => None,
            });
        let disk = self.servers[at].disk.as_ref().map(|disk| &disk.assembly);
        let (Some(notice), Some(disk)) = (notice, disk) else {
            return;
        };
        let is_saved = match (&notice.stage, &disk.stage) {
            _ if disk.term > notice.term => true,
            _ if disk.term < notice.term => false,
            (NoticeStage::Waiting { .. }, _) => true,
            (NoticeStage::Agreed(told), Stage::Agreed(saved)) => told == saved,
            (NoticeStage::Agreed(told), Stage::Assembled(saved)) => told.digest() == *saved,
            (NoticeStage::Assembled(told), Stage::Assembled(saved)) => told == saved,
            _ => false,
        };
        if !is_saved {
            self.wrong
                .push(format!("{at} tells {notice:?}, and has saved {disk:?}"));
        }
    }

    /// Makes a server announce its shutdown; returns whether a replica will be promoted.
    pub(crate) fn leave(&mut self, at: usize) -> bool {
        let (now, around) = (self.clock(at), self.around(at));
        let machine = self.servers[at].machine.as_mut();
        let is_told = machine.is_some_and(|machine| machine.leave(now, &around));
        self.carry_out(at);
        is_told
    }

    /// Meets the unknown servers among the seeds, as the driver does.
    pub(super) fn seek(&mut self, at: usize) {
        let Some(machine) = &self.servers[at].machine else {
            return;
        };
        let map = machine.map();
        let own = &self.servers[at].ip;
        let is_unknown = |ip: &&String| *ip != own && map.nodes.iter().all(|node| node.ip != **ip);
        let unknown: Vec<String> = self.servers[at]
            .seeds
            .iter()
            .filter(is_unknown)
            .cloned()
            .collect();
        for ip in unknown {
            self.change(
                at,
                ClusterChange::Meet {
                    is_by_hand: false,
                    ip,
                    port: 6379,
                    bus_port: 16379,
                },
            );
        }
        let life = self.servers[at].life;
        self.at(self.now + SEEK_EVERY, Event::Seek { at, life });
    }

    /// Takes the disk of a server that is down away: it starts as a new node.
    pub(crate) fn wipe(&mut self, at: usize) {
        self.servers[at].disk = None;
        self.servers[at].writes.clear();
    }

    /// Begins anew with checking claims, as all servers begin anew with another cluster.
    pub(crate) fn forget_claims(&mut self) {
        self.claims.clear();
    }

    /// Changes the settings of a server that runs.
    pub(crate) fn configure(&mut self, at: usize, change: impl FnOnce(&mut ClusterSettings)) {
        change(&mut self.servers[at].settings);
        let (now, around) = (self.clock(at), self.around(at));
        let settings = self.servers[at].settings.clone();
        if let Some(machine) = &mut self.servers[at].machine {
            machine.settings(settings, now, &around);
        }
        self.carry_out(at);
    }

    /// Gives a server that is down another address.
    pub(crate) fn move_to(&mut self, at: usize, ip: &str) {
        ip.clone_into(&mut self.servers[at].ip);
    }

    /// Freezes a server for a time, as under SIGSTOP.
    pub(crate) fn freeze(&mut self, at: usize, millis: Millis) {
        self.servers[at].stopped_until = self.now + millis;
    }

    /// Continues a stopped server, before it processes anything.
    pub(crate) fn thaw(&mut self, at: usize) {
        self.servers[at].stopped_until = 0;
    }

    /// Runs a client's thread at a server, possibly first after a stop; returns whether it acknowledges a
    /// write.
    pub(crate) fn takes_write(&mut self, at: usize) -> bool {
        let (now, around) = (self.clock(at), self.around(at));
        if let Some(machine) = &mut self.servers[at].machine {
            machine.wake(now, &around);
        }
        self.carry_out(at);
        let map = self.servers[at]
            .published
            .as_ref()
            .expect("the server runs");
        map.is_up && map.me().is_primary() && !map.me().slots.is_empty()
    }
}
