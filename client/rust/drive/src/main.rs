//! The program that `client/rust/run` uses in addition to the tests. It is not a part of the published crate.

use std::path::Path;

mod bench;
mod conformance;
mod errors;
mod hop;
mod truth;

type Outcome = Result<(), Box<dyn std::error::Error>>;

const USAGE: &str = "usage: posenc-drive conformance TARGET DIR DESCRIPTORS | errors TABLE ENVFILE | bench TARGET CASE \
                     | hop TARGET IN OUT SHIFT";

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.as_slice() {
            ["conformance", target, directory, descriptors] => {
                conformance::run(target, Path::new(directory), Path::new(descriptors)).await
            }
            ["errors", table, environment] => errors::run(Path::new(table), Path::new(environment)).await,
            ["bench", target, case] => bench::run(target, case).await,
            ["hop", target, input, output, shift] => hop::run(target, input, output, shift.parse()?).await,
            _ => Err(USAGE.into()),
        }
    })
}

/// Prints a line for each case: `family<TAB>name<TAB>ok|fail<TAB>why`.
#[derive(Default)]
struct Report {
    cases: usize,
    failed: usize,
}

impl Report {
    fn line(&mut self, family: &str, name: &str, outcome: Result<(), String>) {
        self.cases += 1;
        match outcome {
            Ok(()) => println!("{family}\t{name}\tok\t"),
            Err(why) => {
                self.failed += 1;
                println!("{family}\t{name}\tfail\t{}", why.replace(['\t', '\n'], " "));
            }
        }
    }

    fn end(self) -> Outcome {
        match (self.cases, self.failed) {
            (0, _) => Err("there are no cases".into()),
            (_, 0) => Ok(()),
            (cases, failed) => Err(format!("{failed} of {cases} cases failed").into()),
        }
    }
}
