//! `lockgate server`: a broker until it is told to stop by SIGINT or SIGTERM.

use clap::Args;
use lockgate_server::{Addresses, Config, Sources};

use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The configuration file; without it ./lockgate.toml, if there is one
    #[arg(long, value_name = "F")]
    config: Option<String>,
    /// Where the node keeps everything
    #[arg(long, value_name = "D")]
    data_dir: Option<String>,
    /// Where clients connect; port 0 takes a free one
    #[arg(long, value_name = "H:P")]
    listen: Option<String>,
    /// Where probes and metrics are served over HTTP; port 0 takes a free one
    #[arg(long, value_name = "H:P")]
    admin: Option<String>,
    /// The node's number, kept in its data directory; 1 unless it is one of several
    #[arg(long, value_name = "N")]
    node_id: Option<String>,
    /// What clients are told to connect to, separated by commas, when it is not the address that is listened on
    #[arg(long, value_name = "H:P")]
    advertise: Option<String>,
}

/// Runs the node. Prints one line once clients can connect; everything else is logged to standard error.
pub(crate) fn run(args: ServerArgs) -> Result<(), Failure> {
    let flags = [
        ("data_dir", args.data_dir),
        ("listen", args.listen),
        ("admin.listen", args.admin),
        ("node.id", args.node_id),
        ("broker.advertise", args.advertise),
    ];
    let flags = flags.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let sources = Sources::gather(args.config.as_deref(), flags).map_err(|error| Failure::Config(vec![error]))?;
    let config = Config::load(&sources).map_err(Failure::Config)?;
    let data_dir = config.data_dir.display().to_string();
    let ready = |Addresses { client, admin }: Addresses| {
        // Nobody may read it: a server that serves does not end for that.
        drop(output::line(format!("lockgate is ready: clients {client}, admin http://{admin}, data {data_dir}")));
    };
    lockgate_server::run(config, ready).map_err(Failure::Server)
}
