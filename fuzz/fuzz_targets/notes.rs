#![no_main]

piton_fuzz::target!(piton, "notes");
