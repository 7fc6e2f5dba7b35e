//! The program `piton-remote`, which `piton` starts for everything that needs the network. Prints one JSON document, and
//! progress as lines of JSON on stderr. The code is in the library of this crate.

fn main() -> std::process::ExitCode {
    piton_remote::program::main()
}
