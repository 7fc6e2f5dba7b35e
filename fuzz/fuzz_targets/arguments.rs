#![no_main]

piton_fuzz::target!(piton_cli, "arguments");
