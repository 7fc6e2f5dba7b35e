//! The program `piton`. The code is in the library of this crate.

fn main() -> std::process::ExitCode {
    piton_cli::main()
}
