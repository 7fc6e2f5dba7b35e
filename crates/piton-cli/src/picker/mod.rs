//! The picker: a full-screen list of the checkpoints, with the changes since each, from which files can be restored.
//!
//! `state` decides, `view` draws, `work` calls the library; this file owns the terminal and passes events and actions
//! between them. The terminal is restored whatever ends the picker, a panic included.

mod help;
mod input;
mod layout;
mod list;
mod opened;
mod patch;
mod revert;
mod state;
mod view;
mod work;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context as _, bail};
use piton::{RestoreOutcome, Store};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, is_raw_mode_enabled,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::Size;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::opened::OpenedProject;
use self::state::{Action, Event, State};
use self::view::Look;
use self::work::Workers;
use crate::context::Context;
use crate::maintenance;
use crate::output::{Output, PartlyDone};
use crate::remote::named::{FromProject, OtherMachine};

/// Shows the checkpoints of the project until the user leaves.
pub(crate) fn open(context: &Context, output: &Output) -> anyhow::Result<()> {
    open_with(context.store_with_checkpoints()?, None, context, output)
}

/// Shows the checkpoints of the project on another machine. Fails with `NotFound` without a remote.
pub(crate) fn open_machine(name: &str, from: &FromProject, context: &Context, output: &Output) -> anyhow::Result<()> {
    let other = OtherMachine::of(name, from, context)?;
    open_with(context.store(Context::now())?, Some(other), context, output)
}

fn open_with(store: Store, other: Option<OtherMachine>, context: &Context, output: &Output) -> anyhow::Result<()> {
    let project = context.project(Some(&store))?;
    let look = Look::new(output.has_colours(), project.dir(), other.as_ref().map(|other| &*other.name));
    let (sender, events) = channel();
    let waits = sender.clone();
    let store = store.on_lock_wait(move |waiting| {
        let _ = waits.send(Event::Waits(waiting.to_string()));
    });
    let opened = Arc::new(OpenedProject { store, project, settings: context.settings.clone(), other });
    let state = {
        let _screen = Screen::enter(&sender).context("cannot use the terminal")?;
        listen(&sender).context("cannot start a thread")?;
        let workers = Workers::start(&opened, &sender).context("cannot start a thread")?;
        run(&look, &workers, &events).context("cannot draw on the terminal")?
    };
    // Repeat the results on the normal screen, where they stay visible.
    state.done.iter().for_each(|done| output.text(done.summary()));
    if !state.done.is_empty() {
        maintenance::start_if_due(&opened.store, &context.settings, context.config.as_deref());
    }
    if let Some(why) = &state.gone {
        bail!("cannot go on: {why}\nhint: `piton rollback` starts again from the list");
    }
    if let Some(signal) = state.signal {
        // End by the same signal, so that the parent process sees it.
        signal_hook::low_level::emulate_default_handler(signal).context("cannot end by a signal")?;
    }
    match state.done.last() {
        Some(done) if done.outcome == RestoreOutcome::Partly => Err(PartlyDone.into()),
        _ => Ok(()),
    }
}

fn run(look: &Look, workers: &Workers, events: &Receiver<Event>) -> io::Result<State> {
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let mut state = State::new(terminal.size()?);
    workers.ask(Action::List);
    loop {
        terminal.draw(|frame| view::draw(frame, &state, look))?;
        let Ok(event) = events.recv() else { return Ok(state) };
        // Handle all pending events before drawing once. The size is queried, because a resize may have happened before
        // the thread listened for it.
        let size = Event::Resized(terminal.size()?);
        for event in [event].into_iter().chain(events.try_iter()).chain([size]) {
            for action in state.update(event) {
                if action == Action::Quit {
                    return Ok(state);
                }
                workers.ask(action);
            }
        }
    }
}

/// Starts the threads that wait for keys, the mouse and signals. They end with the process.
fn listen(sender: &Sender<Event>) -> io::Result<()> {
    let events = sender.clone();
    thread::Builder::new().name("picker: keys".to_owned()).spawn(move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) => Event::Key(key),
                Ok(event::Event::Mouse(mouse)) => Event::Mouse(mouse),
                Ok(event::Event::Resize(width, height)) => Event::Resized(Size { width, height }),
                Ok(_) => continue,
                Err(_) => Event::Gone("the terminal is gone".to_owned()),
            };
            let is_last = matches!(event, Event::Gone(_));
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    })?;
    let events = sender.clone();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::Builder::new().name("picker: signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let _ = events.send(Event::Signal(signal));
        }
    })?;
    Ok(())
}

/// Holds the terminal in raw mode on the alternate screen, until it is dropped.
struct Screen;

impl Screen {
    fn enter(events: &Sender<Event>) -> io::Result<Self> {
        // The message of a panic is printed before the stack unwinds, and belongs on the user's own screen. A panic of
        // another thread is reported after this thread has stopped drawing.
        let (before, events, ours) = (std::panic::take_hook(), events.clone(), thread::current().id());
        std::panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == ours {
                give_back();
                before(panic);
            } else {
                let _ = events.send(Event::Gone(panic.to_string()));
            }
        }));
        enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal, at most once: a second time would move the cursor over output printed since. Errors are
/// ignored: a terminal that is gone needs no restoring.
fn give_back() {
    if is_raw_mode_enabled().unwrap_or(false) {
        let _ = execute!(io::stdout(), DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}
