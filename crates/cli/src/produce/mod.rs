//! `lockgate produce`: one record per input line, streaming, each acknowledged line accounted for.
//!
//! A thread reads lines ahead within a bound ([`lines`]); this loop hands them to the producer and takes the answers in
//! the order of the lines ([`ledger`]). It ends with the input, with the first line that was not acknowledged, or when the
//! user interrupts it; what was handed over by then is waited for, and the report ([`view`]) tells of every line.

mod ledger;
mod lines;
mod record;
mod view;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use lockgate_client::{Ack, Client, ClientError, MAX_IDEMPOTENT_IN_FLIGHT, Producer, ProducerConfig, Record};
use tokio::sync::mpsc::Receiver;

use self::ledger::Ledger;
use self::lines::{Block, ReadError};
use self::record::Maker;
use crate::args::{AckArg, Format, Global, parse_pair};
use crate::connect::connect;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;

/// Most lines that wait for their turn in the report: beyond it, no more are read. The producer's buffer bounds the lines
/// without an answer; this bounds those that are answered and stand behind one that is not.
const PENDING_LINES_MAX: usize = 1_000_000;

/// Records that wait for their acknowledgement. Enough to keep any broker busy, and little enough that no record waits for
/// long behind others: its time counts from when it was taken.
const BUFFER_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Produce {
    /// The topic
    topic: String,
    /// Where the lines are; without it, standard input
    #[arg(long, value_name = "F")]
    file: Option<PathBuf>,
    /// text: a line is a value; json: a line is an object with key, value, headers, timestamp and partition, as consume
    /// prints them, and nothing else; raw: a line with its end is a value
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The key of every record
    #[arg(long, value_name = "K", conflicts_with = "key_separator")]
    key: Option<String>,
    /// What is before the first C of a line is its key
    #[arg(long, value_name = "C")]
    key_separator: Option<char>,
    /// A header of every record; may be given more than once
    #[arg(long = "header", value_name = "K=V", value_parser = parse_pair)]
    headers: Vec<(String, String)>,
    /// When a record counts as acknowledged
    #[arg(long, value_enum, default_value_t)]
    ack: AckArg,
    /// A batch of records does not grow above this
    #[arg(long, value_name = "B", default_value_t = 64 * 1024)]
    batch_bytes: usize,
    /// Most batches of a partition that wait for their answer: 1 to 5, with --ack leader or none 1 to 1000
    #[arg(long, value_name = "N", default_value_t = MAX_IDEMPOTENT_IN_FLIGHT)]
    in_flight: usize,
    /// How long a record may wait for its acknowledgement, in seconds. The broker has to be there at the start; once
    /// connected, it is tried again and again for this long
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=24 * 60 * 60))]
    timeout: u64,
    /// Write a line `LINE PARTITION OFFSET` to this file for every acknowledged input line, as soon as it is known
    #[arg(long, value_name = "F")]
    acks: Option<PathBuf>,
}

/// Why the loop ended.
#[derive(Debug)]
enum End {
    /// All lines were handed over.
    Input,
    /// A signal came.
    Interrupted(&'static str),
    /// The input could not be read on.
    Unreadable(ReadError),
    /// This line was never handed over.
    Refused { line: u64, problem: String },
    /// A line came back unacknowledged, or its acknowledgement could not be written; the ledger knows which.
    NotAcknowledged,
}

pub(crate) async fn run(args: &Produce, global: &Global) -> Result<(), Failure> {
    let maker = Maker::new(args.format, args.key.as_deref(), args.key_separator, &args.headers);
    let acks = args.acks.as_deref().map(|path| {
        let what = format!("the file {} for acknowledgements cannot be made", path.display());
        File::create(path).map(BufWriter::new).map_err(Failure::io(what))
    });
    let input = open(args)?;
    let client = connect(global).await?;
    let producer = client.producer(&args.topic, args.config()).await?;
    let limit = producer.topic().max_batch_bytes as usize;
    let mut lines = lines::start(input, limit, args.format == Format::Raw).map_err(Failure::io("a thread"))?;
    let mut interrupt = Interrupt::listen()?;

    let started = Instant::now();
    let mut ledger = Ledger::new(acks.transpose()?);
    let end = pass(&producer, &mut lines, &maker, &mut ledger, &mut interrupt).await;
    if !matches!(end, End::Input) && !ledger.is_empty() {
        output::note(
            global,
            format_args!("stopping: waiting for the answers to {}", output::count(ledger.len() as u64, "line")),
        );
    }
    settle_all(&client, &mut ledger, &mut interrupt).await;
    let report =
        view::Report { topic: &args.topic, ledger: &ledger, end: &end, took: started.elapsed(), ack: args.ack };
    output::print(global, || report.text(), || report.json())?;
    report.failure().map_or(Ok(()), Err)
}

impl Produce {
    fn config(&self) -> ProducerConfig {
        ProducerConfig {
            batch_bytes: self.batch_bytes,
            ack: self.ack.level(),
            idempotent: self.ack.level() == Ack::Quorum,
            in_flight: self.in_flight,
            buffer_bytes: BUFFER_BYTES,
            timeout: Duration::from_secs(self.timeout),
            ..ProducerConfig::default()
        }
    }
}

fn open(args: &Produce) -> Result<Box<dyn io::Read + Send>, Failure> {
    let Some(path) = &args.file else { return Ok(Box::new(io::stdin())) };
    let file = File::open(path).map_err(Failure::io(format!("{} cannot be read", path.display())))?;
    Ok(Box::new(file))
}

/// Hands the lines over until there is a reason to end.
async fn pass(
    producer: &Producer,
    lines: &mut Receiver<Result<Block, ReadError>>,
    maker: &Maker,
    ledger: &mut Ledger,
    interrupt: &mut Interrupt,
) -> End {
    let mut block = Block::default();
    // Taken from the block, and not by the producer for want of room.
    let mut waiting: Option<(u64, Option<u32>, Record)> = None;
    loop {
        while waiting.is_some() || ledger.len() < PENDING_LINES_MAX {
            let (line, partition, record) = match waiting.take() {
                Some(waiting) => waiting,
                None => match block.next() {
                    None => break,
                    Some((line, text)) => match maker.record(text) {
                        Ok((partition, record)) => (line, partition, record),
                        Err(problem) => return End::Refused { line, problem },
                    },
                },
            };
            match producer.try_send(partition, record.clone()) {
                Ok(delivery) => ledger.push(line, &record, delivery),
                Err(ClientError::BufferFull { .. }) => {
                    waiting = Some((line, partition, record));
                    break;
                }
                Err(error) => return End::Refused { line, problem: error.to_string() },
            }
        }
        let has_room = waiting.is_none() && ledger.len() < PENDING_LINES_MAX;
        tokio::select! {
            biased;
            signal = interrupt.next() => return End::Interrupted(signal),
            () = ledger.settle_some(), if !ledger.is_empty() => {
                if ledger.has_failed() {
                    return End::NotAcknowledged;
                }
            }
            next = lines.recv(), if has_room => match next {
                None => return End::Input,
                Some(Ok(next)) => block = next,
                Some(Err(error)) => return End::Unreadable(error),
            },
        }
    }
}

/// Waits for all answers. Each comes within the producer's timeout; a signal makes the rest unknown at once.
async fn settle_all(client: &Client, ledger: &mut Ledger, interrupt: &mut Interrupt) {
    while !ledger.is_empty() {
        tokio::select! {
            biased;
            _ = interrupt.next() => client.close(),
            () = ledger.settle_some() => {}
        }
    }
}
