//! The program `piton`. What it does is in the library beside it.

fn main() -> std::process::ExitCode {
    piton_cli::main()
}
