//! The main promise, on the real binary: whatever is killed whenever, what was reported as acknowledged is there, once, at
//! its place, and in order per partition.
//!
//! `LOCKGATE_KILLS` (10) and `LOCKGATE_KILL_LINES` (100 000) say how hard to try, `LOCKGATE_KILL_SEED` repeats a run. The
//! full measure: `LOCKGATE_KILLS=200 LOCKGATE_KILL_LINES=2000000 ./test --release -p lockgate --test kill --no-capture`.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use support::{Broker, Random, Scratch, number_from_env, shown, wait_until};

const TOPIC: &str = "lines";
const PARTITIONS: u32 = 3;
const WORDS: [&str; 16] = [
    "aurora", "basalt", "cinder", "delta", "ember", "fathom", "glacier", "harbour", "isthmus", "jetty", "keel",
    "lagoon", "meridian", "narrows", "oxbow", "pier",
];

/// The line of a run with this number, from 1; no other is like it.
fn line(run: u64, number: u64) -> String {
    let mut random = run.wrapping_mul(0x1_0000_0001).wrapping_add(number);
    let mut words = String::new();
    for _ in 0..4 + number % 5 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        words.push(' ');
        words.push_str(WORDS[(random >> 60) as usize]);
    }
    format!("{run}.{number}{words}")
}

/// The file that `produce --acks` writes, read as it grows.
struct Acks {
    path: PathBuf,
    reader: BufReader<File>,
    partial: String,
    /// Place by line.
    places: BTreeMap<u64, (u32, u64)>,
}

impl Acks {
    fn open(path: PathBuf) -> Self {
        File::create(&path).unwrap();
        let reader = BufReader::new(File::open(&path).unwrap());
        Self { path, reader, partial: String::new(), places: BTreeMap::new() }
    }

    /// How many lines are acknowledged by now. A last line without an end is not written to its end, and does not count.
    fn count(&mut self) -> u64 {
        while self.reader.read_line(&mut self.partial).unwrap() > 0 {
            let Some(whole) = self.partial.strip_suffix('\n') else { break };
            let numbers: Vec<u64> = whole.split(' ').map(|number| number.parse().unwrap()).collect();
            let [line, partition, offset] = numbers[..] else { panic!("{whole:?}") };
            assert_eq!(self.places.insert(line, (partition as u32, offset)), None, "line {line} is acknowledged twice");
            self.partial.clear();
        }
        self.places.len() as u64
    }
}

fn write_lines(path: &Path, run: u64, lines: u64) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    for number in 1..=lines {
        writeln!(file, "{}", line(run, number)).unwrap();
    }
    file.flush().unwrap();
}

fn produce(scratch: &Scratch, broker: &Broker, input: &Path, acks: &Path) -> Child {
    let (input, acks) = (input.to_str().unwrap(), acks.to_str().unwrap());
    let mut arguments = vec!["produce", TOPIC, "--file", input, "--acks", acks, "--json", "--batch-bytes", "8192"];
    // What is handed over early waits for many restarts.
    arguments.extend(["--timeout", "600"]);
    scratch.lockgate(broker, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Everything in the topic, by partition and offset, read by a fresh client.
fn read_back(scratch: &Scratch, broker: &Broker) -> Vec<Vec<String>> {
    let read = |partition: u32| {
        let text = scratch.run(broker, &["consume", TOPIC, "--partition", &partition.to_string()]);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    (0..PARTITIONS).map(read).collect()
}

/// Splits a line that came back into its run and number, and checks that it is that line in whole.
fn identify(text: &str) -> (u64, u64) {
    let (run, rest) = text.split_once('.').unwrap_or_else(|| panic!("{text:?} was never sent"));
    let number = rest.split(' ').next().unwrap();
    let (run, number) = (run.parse().unwrap(), number.parse().unwrap());
    assert_eq!(text, line(run, number));
    (run, number)
}

/// What every reader must find after any history: each acknowledged line at its place, no line twice, and within a run's
/// lines their order.
fn check(found: &[Vec<String>], acknowledged: &BTreeMap<u64, BTreeMap<u64, (u32, u64)>>) {
    for (run, places) in acknowledged {
        for (number, (partition, offset)) in places {
            let text = found[*partition as usize].get(*offset as usize);
            let expected = line(*run, *number);
            assert_eq!(text, Some(&expected), "line {number} of run {run} was acknowledged at {partition}/{offset}");
        }
    }
    let mut seen = std::collections::HashSet::new();
    for partition in found {
        let mut last = BTreeMap::new();
        for text in partition {
            let (run, number) = identify(text);
            assert!(seen.insert((run, number)), "line {number} of run {run} is there twice");
            if let Some(before) = last.insert(run, number) {
                assert!(before < number, "line {number} of run {run} comes after line {before}");
            }
        }
    }
}

/// Kills the broker at a moment of chance, now and then once more before it is ready again, and has it come back.
fn kill_and_restart(scratch: &Scratch, broker: &mut Broker, random: &mut Random) -> u64 {
    let mut kills = 1;
    broker.kill();
    std::thread::sleep(Duration::from_millis(random.below(100)));
    if random.below(4) == 0 {
        let starting = broker.begin_again(scratch);
        std::thread::sleep(Duration::from_millis(random.below(400)));
        drop(starting.kill());
        kills += 1;
    }
    *broker = broker.start_again(scratch);
    kills
}

#[test]
fn every_acknowledged_line_outlives_a_broker_that_is_killed_again_and_again() {
    let (kills, lines) = (number_from_env("LOCKGATE_KILLS", 10), number_from_env("LOCKGATE_KILL_LINES", 100_000));
    let mut random = Random::from_env("LOCKGATE_KILL_SEED");
    let scratch = Scratch::new();
    let mut broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", TOPIC, "--partitions", &PARTITIONS.to_string()]);
    let input = scratch.file("input");
    write_lines(&input, 0, lines);
    let mut acks = Acks::open(scratch.file("acks"));
    let mut producer = produce(&scratch, &broker, &input, &acks.path);

    let mut killed = 0;
    while killed < kills {
        // At a moment of chance within this kill's share of the lines.
        let share = lines / (kills + 1);
        let target = share * killed + random.below(share) + 1;
        let mut has_ended = false;
        wait_until("the lines of this kill's share are acknowledged", || {
            has_ended = producer.try_wait().unwrap().is_some();
            acks.count() >= target || has_ended
        });
        if acks.count() < target {
            let output = producer.wait_with_output().unwrap();
            panic!("produce ended after {killed} kills: {}\n{}", shown(&output), broker.log());
        }
        killed += kill_and_restart(&scratch, &mut broker, &mut random);
    }
    let output = producer.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{}", shown(&output), broker.log());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["acknowledged"], lines);
    assert_eq!(report["lines"]["acknowledged"], serde_json::json!([[1, lines]]));
    assert_eq!(acks.count(), lines);

    broker.kill();
    let broker = broker.start_again(&scratch);
    let found = read_back(&scratch, &broker);
    assert_eq!(found.iter().map(Vec::len).sum::<usize>() as u64, lines, "as many records as lines");
    check(&found, &BTreeMap::from([(0, acks.places)]));
    println!(
        "{lines} lines, {} kills: {:?} lines in the partitions",
        killed + 1,
        found.iter().map(Vec::len).collect::<Vec<_>>()
    );
}

#[test]
fn what_a_killed_producer_reported_is_there() {
    let runs = number_from_env("LOCKGATE_KILLS", 10).div_ceil(2);
    let mut random = Random::from_env("LOCKGATE_KILL_SEED");
    let scratch = Scratch::new();
    let mut broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", TOPIC, "--partitions", &PARTITIONS.to_string()]);
    let lines = 20_000;
    let input = scratch.file("input");
    let mut acknowledged = BTreeMap::new();
    for run in 0..runs {
        write_lines(&input, run, lines);
        let mut acks = Acks::open(scratch.file(&format!("acks.{run}")));
        let mut producer = produce(&scratch, &broker, &input, &acks.path);
        let target = random.below(lines) + 1;
        wait_until("the lines before the kill are acknowledged", || acks.count() >= target);
        if random.below(3) == 0 {
            kill_and_restart(&scratch, &mut broker, &mut random);
        }
        producer.kill().unwrap();
        producer.wait().unwrap();
        assert!(acks.count() >= target);
        acknowledged.insert(run, acks.places);
        fs::remove_file(&acks.path).unwrap();
    }
    broker.kill();
    let broker = broker.start_again(&scratch);
    let found = read_back(&scratch, &broker);
    let reported: usize = acknowledged.values().map(BTreeMap::len).sum();
    println!("{runs} producers killed: {reported} lines reported, {} there", found.iter().map(Vec::len).sum::<usize>());
    check(&found, &acknowledged);
}
