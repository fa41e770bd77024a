//! The table of commands: the rows of all families.

use super::declaration::Command;

/// The families, in the order of the documentation.
pub(super) static FAMILIES: &[&[&Command]] = &[
    super::connection::TABLE,
    super::acl::TABLE,
    super::client::TABLE,
    super::cluster::TABLE,
    super::database::TABLE,
    super::generic::TABLE,
    super::server::TABLE,
    super::replication::TABLE,
    super::introspect::TABLE,
    super::debug::TABLE,
    super::string::TABLE,
    super::lease::TABLE,
    super::tag::TABLE,
    super::bless::TABLE,
    super::bitmap::TABLE,
    super::hash::TABLE,
    super::lock::TABLE,
    super::rate::TABLE,
    super::sorted_set::TABLE,
    super::stream::TABLE,
    super::geo::TABLE,
    super::transaction::TABLE,
    super::list::TABLE,
    super::set::TABLE,
    super::hyperloglog::TABLE,
    super::pubsub::TABLE,
    super::probabilistic::TABLE,
    super::json::TABLE,
    super::script::TABLE,
];
