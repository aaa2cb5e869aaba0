//! `lockgate consume`: prints records, partition by partition in order, and commits what it printed if it is asked to.

mod commits;
mod format;

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use clap::Args;
use lockgate_client::{Client, ClientError, Item, Reader, ReaderConfig};

use self::commits::Commits;
use crate::args::{Format, Global};
use crate::connect::connect;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::position::Position;

/// What is written at once.
const OUT_BUFFER_BYTES: usize = 256 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Consume {
    /// The topic
    topic: String,
    /// Where to begin: earliest, latest, offset:N, time:T, last:N, or cursor:NAME, which is also committed after printing
    #[arg(long, value_name = "POSITION", default_value = "earliest")]
    from: Position,
    /// One partition; by default all of them
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// Wait for more at the end, until interrupted
    #[arg(long)]
    follow: bool,
    /// Stop after this many records
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// text: a value a line; json: an object a line; raw: values alone. With --json it is json and nothing else
    #[arg(long, value_enum)]
    format: Option<Format>,
}

pub(crate) async fn run(args: &Consume, global: &Global) -> Result<(), Failure> {
    let format = args.format(global)?;
    let mut interrupt = Interrupt::listen()?;
    let client = connect(global).await?;
    let config = ReaderConfig {
        from: args.from.start(),
        partitions: args.partition.map(|partition| vec![partition]),
        stop_at_end: !args.follow,
        ..ReaderConfig::default()
    };
    let mut reader = client.reader(&args.topic, config).await?;
    let mut printing = Printing::new(args, global, format, &client).await?;
    loop {
        tokio::select! {
            biased;
            _ = interrupt.next() => break,
            done = printing.step(&mut reader) => if done? { break },
        }
    }
    printing.finish().await
}

impl Consume {
    fn format(&self, global: &Global) -> Result<Format, Failure> {
        match (self.format, global.json) {
            (None | Some(Format::Json), true) => Ok(Format::Json),
            (Some(_), true) => Err(Failure::Usage(
                "--json prints JSON, and --format asks for something else; leave one of them out".into(),
            )),
            (format, false) => Ok(format.unwrap_or_default()),
        }
    }
}

/// The records on their way to standard output.
struct Printing<'a> {
    global: &'a Global,
    out: BufWriter<io::StdoutLock<'static>>,
    format: Format,
    /// How many more may be printed.
    left: u64,
    commits: Option<Commits>,
    /// The first partition that could not be read to its end.
    failed: Option<ClientError>,
}

impl<'a> Printing<'a> {
    async fn new(args: &Consume, global: &'a Global, format: Format, client: &Client) -> Result<Self, Failure> {
        let commits = match &args.from {
            Position::Cursor(name) => Some(Commits::new(client.cursors(&args.topic).await?, name.clone())),
            _ => None,
        };
        Ok(Self {
            global,
            out: BufWriter::with_capacity(OUT_BUFFER_BYTES, io::stdout().lock()),
            format,
            left: args.max.unwrap_or(u64::MAX),
            commits,
            failed: None,
        })
    }

    /// Prints what comes next. True when nothing more is to be printed. Cancelled, it loses nothing that was not printed.
    async fn step(&mut self, reader: &mut Reader) -> Result<bool, Failure> {
        if self.left == 0 {
            return Ok(true);
        }
        let due_in = self.commits.as_ref().and_then(Commits::due_in);
        if due_in == Some(Duration::ZERO) {
            return self.commit().await.map(|()| false);
        }
        match tokio::time::timeout(due_in.unwrap_or(Duration::MAX), reader.next_batch()).await {
            Err(_) => return self.commit().await.map(|()| false),
            Ok(None) => return Ok(true),
            Ok(Some(Ok(items))) => items.iter().try_for_each(|item| self.item(item))?,
            Ok(Some(Err(error))) => {
                let partition =
                    reader.failed_partition().map_or_else(|| "a partition".into(), |p| format!("partition {p}"));
                output::note(self.global, format_args!("{partition} is read no further: {error}"));
                self.failed.get_or_insert(error);
            }
        }
        self.out.flush().map_err(output::write_failed)?;
        if let Some(commits) = &mut self.commits {
            commits.printed();
        }
        Ok(self.left == 0)
    }

    fn item(&mut self, item: &Item) -> Result<(), Failure> {
        match item {
            Item::Record(_) if self.left == 0 => {}
            Item::Record(record) => {
                format::write(&mut self.out, self.format, record).map_err(output::write_failed)?;
                self.left -= 1;
                if let Some(commits) = &mut self.commits {
                    commits.read(record.partition, record.offset);
                }
            }
            Item::PartitionLost { partition, error } => {
                output::note(self.global, format_args!("partition {partition} is lost for now: {error}"));
            }
            Item::PartitionRecovered { partition } => {
                output::note(self.global, format_args!("partition {partition} is back"));
            }
            Item::EndOfPartition { .. } => {}
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), Failure> {
        match &mut self.commits {
            Some(commits) => commits.commit().await,
            None => Ok(()),
        }
    }

    async fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(output::write_failed)?;
        self.commit().await?;
        self.failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
