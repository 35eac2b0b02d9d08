//! Writes an input file of the side-by-side harness:
//!
//! ```text
//! generate WORKLOAD ROWS PATH [--seed N] [--start-id N] [--good]
//! ```
//!
//! The same arguments give the same bytes. `--start-id` continues an earlier file of the same seed, for appends.
//! `--good` leaves out the rows with invalid values.

use std::fs::File;
use std::process::ExitCode;

use pg_bulk_bench::generate::{WORKLOADS, Workload};

const USAGE: &str = "usage: generate WORKLOAD ROWS PATH [--seed N] [--start-id N] [--good]";

struct Request {
    workload: Workload,
    rows: u64,
    path: String,
    seed: u64,
    first_id: u64,
    good_only: bool,
}

fn request(mut arguments: impl Iterator<Item = String>) -> Result<Request, String> {
    let mut operands = Vec::new();
    let (mut seed, mut first_id, mut good_only) = (1, 1, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => seed = number("--seed", arguments.next())?,
            "--start-id" => first_id = number("--start-id", arguments.next())?,
            "--good" => good_only = true,
            option if option.starts_with("--") => return Err(format!("unknown option {option}\n{USAGE}")),
            _ => operands.push(argument),
        }
    }
    let Ok([workload, rows, path]) = <[String; 3]>::try_from(operands) else {
        return Err(USAGE.to_string());
    };
    let Some(workload) = Workload::named(&workload) else {
        let names = WORKLOADS.map(Workload::name).join(", ");
        return Err(format!("unknown workload {workload}: there are {names}"));
    };
    let rows = number("ROWS", Some(rows))?;
    // The tables have int keys.
    if first_id.checked_add(rows).is_none_or(|end| end > i32::MAX as u64) {
        return Err(format!("ids must not exceed {}", i32::MAX));
    }
    Ok(Request { workload, rows, path, seed, first_id, good_only })
}

fn number(name: &str, value: Option<String>) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("{name} wants a number\n{USAGE}"))?;
    value.parse().map_err(|error| format!("{name} {value}: {error}"))
}

fn run() -> Result<(), String> {
    let Request { workload, rows, path, seed, first_id, good_only } = request(std::env::args().skip(1))?;
    let in_file = |error| format!("{path}: {error}");
    let mut file = File::create(&path).map_err(in_file)?;
    let bytes = if good_only {
        workload.write_good(&mut file, rows, seed, first_id)
    } else {
        workload.write(&mut file, rows, seed, first_id)
    };
    let bytes = bytes.map_err(in_file)?;
    println!("rows={rows} bytes={bytes}");
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("generate: {message}");
            ExitCode::FAILURE
        }
    }
}
