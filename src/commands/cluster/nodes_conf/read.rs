//! Parses nodes.conf to the saved state.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::assembly::AssemblyRecord;
use crate::cluster::flags::NodeFlags;
use crate::cluster::node_id::NodeId;
use crate::cluster::saved::{Saved, SavedNode};
use crate::cluster::slot_set::SlotSet;
use crate::cluster::text::{is_address, is_hostname, is_human_name};
use basalt_core::base::hash::SLOTS;

/// Distance of the bus port from the port for clients, if nodes.conf does not contain the bus port.
const BUS_PORT_DISTANCE: u16 = 10_000;

/// A defect of nodes.conf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Broken {
    /// The line's number, starting with 1; that of the last line if something is missing.
    pub line: usize,
    /// Description of the defect.
    pub what: String,
}

/// IDs and slots of earlier lines, so that a line need not be compared with each of them.
#[derive(Default)]
struct NodesConfIndex {
    names: BTreeSet<NodeId>,
    slots: SlotSet,
}

/// Parses the text of nodes.conf. `is_tls` tells, for a file without TLS ports, whether its ports are TLS ports: true
/// if the bus uses TLS.
pub fn read(text: &str, is_tls: bool) -> Result<Saved, Broken> {
    let mut saved = Saved::default();
    let mut seen = NodesConfIndex::default();
    let mut last = 0;
    for (at, line) in text.lines().enumerate() {
        last = at + 1;
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let taken = match fields.first() {
            None => Ok(()),
            Some(first) if first.eq_ignore_ascii_case("vars") => vars(&fields[1..], &mut saved),
            Some(_) => node(&fields, is_tls, &mut saved, &mut seen),
        };
        taken.map_err(|what| Broken { line: last, what })?;
    }
    let myself = |node: &&SavedNode| node.flags.any(NodeFlags::MYSELF);
    match saved.nodes.iter().filter(myself).count() {
        1 => {}
        0 => {
            let what = "no node has the flag myself".to_owned();
            return Err(Broken { line: last, what });
        }
        count => {
            let what = format!("{count} nodes have the flag myself");
            return Err(Broken { line: last, what });
        }
    }
    agree(&mut saved);
    Ok(saved)
}

/// Corrects harmless contradictions: a replica is in its primary's shard, and no node's epoch is above the current
/// epoch.
fn agree(saved: &mut Saved) {
    let shards: BTreeMap<NodeId, NodeId> = saved
        .nodes
        .iter()
        .filter_map(|node| Some((node.id, node.shard_id?)))
        .collect();
    for node in &mut saved.nodes {
        if let Some(shard) = node.primary.and_then(|primary| shards.get(&primary)) {
            node.shard_id = Some(*shard);
        }
    }
    let epochs = saved.nodes.iter().map(|node| node.config_epoch);
    saved.current_epoch = epochs.fold(saved.current_epoch, u64::max);
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{what} is {text:?}"))
}

fn name(text: &str, whose: &str) -> Result<NodeId, String> {
    NodeId::from_text(text.as_bytes()).ok_or_else(|| format!("the name of {whose} is {text:?}"))
}

fn vars(pairs: &[&str], saved: &mut Saved) -> Result<(), String> {
    let (pairs, rest) = pairs.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("a variable without a value".to_owned());
    }
    for [variable, value] in pairs {
        let place = match variable.to_ascii_lowercase().as_str() {
            "currentepoch" => &mut saved.current_epoch,
            "lastvoteepoch" => &mut saved.last_vote_epoch,
            "assembly" => {
                let record = AssemblyRecord::from_word(value);
                saved.assembly = record.ok_or_else(|| format!("{variable} is {value:?}"))?;
                continue;
            }
            // A newer server may have further variables: ignore them.
            _ => continue,
        };
        *place = number(value, variable)?;
    }
    Ok(())
}

fn node(
    fields: &[&str],
    is_tls: bool,
    saved: &mut Saved,
    seen: &mut NodesConfIndex,
) -> Result<(), String> {
    let [
        id,
        address,
        flags,
        primary,
        sent,
        received,
        epoch,
        _,
        slots @ ..,
    ] = fields
    else {
        return Err(format!("{} fields, but 8 are required", fields.len()));
    };
    let id = name(id, "the node")?;
    if !seen.names.insert(id) {
        return Err(format!("node {id} has more than one line"));
    }
    let mut node = SavedNode {
        id,
        ip: String::new(),
        port: 0,
        tls_port: 0,
        bus_port: 0,
        hostname: String::new(),
        human_name: String::new(),
        shard_id: None,
        flags: NodeFlags::NONE,
        primary: match *primary {
            "-" => None,
            primary => Some(name(primary, "the primary")?),
        },
        ping_sent: number(sent, "the time of the ping")?,
        pong_received: number(received, "the time of the pong")?,
        config_epoch: number(epoch, "the epoch")?,
        slots: SlotSet::default(),
    };
    place(address, is_tls, &mut node)?;
    for word in flags.split(',') {
        let word = word.to_ascii_lowercase();
        let flag = NodeFlags::from_word(word.as_bytes());
        node.flags
            .set(flag.ok_or_else(|| format!("flag {word:?} is unknown"))?);
    }
    if node.flags.any(NodeFlags::REPLICA) && node.primary.is_some() {
        // The line of a replica contains its primary's epoch.
        node.config_epoch = 0;
    }
    for field in slots {
        match field.strip_prefix('[') {
            Some(field) => open(field, saved).ok_or_else(|| format!("open slot [{field}"))?,
            None => range(field, &mut seen.slots, &mut node.slots)?,
        }
    }
    saved.nodes.push(node);
    Ok(())
}

/// Parses `ip:port@bus,hostname,name=value,name=value`; everything after the port is optional.
fn place(text: &str, is_tls: bool, node: &mut SavedNode) -> Result<(), String> {
    let mut fields = text.split(',');
    let address = fields.next().unwrap_or_default();
    let wrong = || format!("the address is {address:?}");
    let (ip, ports) = address.rsplit_once(':').ok_or_else(wrong)?;
    if !ip.is_empty() && !is_address(ip) {
        return Err(wrong());
    }
    node.ip = ip.to_owned();
    let port = |text: &str| text.parse::<u16>().map_err(|_| wrong());
    let (main, bus) = match ports.split_once('@') {
        Some((main, bus)) => (port(main)?, Some(port(bus)?)),
        None => (port(ports)?, None),
    };
    let hostname = fields.next().filter(|name| is_hostname(name));
    node.hostname = hostname.unwrap_or_default().to_owned();
    let (mut plain, mut tls) = (None, None);
    for field in fields {
        let wrong = || format!("the field {field:?} is not of the form name=value");
        let (field, value) = field.split_once('=').ok_or_else(wrong)?;
        match field {
            "shard-id" => node.shard_id = Some(name(value, "the shard")?),
            "nodename" if is_human_name(value) => node.human_name = value.to_owned(),
            "tcp-port" => plain = Some(port(value)?),
            "tls-port" => tls = Some(port(value)?),
            "nodename" => return Err(wrong()),
            // A newer server may have further properties: ignore them.
            _ => {}
        }
    }
    (node.port, node.tls_port) = match (plain, tls) {
        (None, None) if is_tls => (0, main),
        (None, tls) => (main, tls.unwrap_or(0)),
        (Some(plain), tls) => (plain, tls.unwrap_or(main)),
    };
    let default = || {
        main.checked_add(BUS_PORT_DISTANCE)
            .ok_or_else(|| format!("port {main} is too high for a cluster bus port"))
    };
    node.bus_port = bus.map_or_else(default, Ok)?;
    Ok(())
}

fn slot(text: &str) -> Option<u16> {
    let slot = text.parse().ok()?;
    (slot < SLOTS).then_some(slot)
}

/// Parses a slot that is being moved: `100->-id]` or `100-<-id]`.
fn open(field: &str, saved: &mut Saved) -> Option<()> {
    let (number, way) = field.strip_suffix(']')?.split_once('-')?;
    let number = slot(number)?;
    let (place, other) = match way.strip_prefix(">-") {
        Some(other) => (&mut saved.migrating, other),
        None => (&mut saved.importing, way.strip_prefix("<-")?),
    };
    place.insert(number, NodeId::from_text(other.as_bytes())?);
    Some(())
}

/// Parses a slot or a range of slots: `7` or `7-9`. A slot that occurred in an earlier line stays with the node of
/// that line.
fn range(field: &str, seen: &mut SlotSet, slots: &mut SlotSet) -> Result<(), String> {
    let (first, last) = field.split_once('-').unwrap_or((field, field));
    let both = slot(first).zip(slot(last));
    let (first, last) = both
        .filter(|(first, last)| first <= last)
        .ok_or_else(|| format!("slots {field:?}"))?;
    for slot in first..=last {
        if seen.insert(slot) {
            slots.insert(slot);
        }
    }
    Ok(())
}
