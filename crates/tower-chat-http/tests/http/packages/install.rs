//! Installs OpenAI's packages into cargo's target folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

const PYTHON: &str = "3.54.0";
const JAVASCRIPT: &str = "7.57.0";

/// An interpreter with which a script can use OpenAI's package.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) program: PathBuf,
    /// The working directory of the interpreter.
    pub(crate) folder: PathBuf,
    /// The file name of the script that sends the recorded requests.
    pub(crate) script: &'static str,
}

/// Returns the Python interpreter of an environment that contains the package. The first test that
/// calls this function installs the package.
pub(crate) fn python() -> Result<Program, String> {
    static INSTALLED: OnceLock<Result<Program, String>> = OnceLock::new();
    INSTALLED.get_or_init(install_python).clone()
}

fn install_python() -> Result<Program, String> {
    let folder = target().join(format!("openai-{PYTHON}"));
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let is_installed = || {
        let check = format!("import openai; assert openai.__version__ == '{PYTHON}'");
        run(Command::new(&python).args(["-c", &check]))
    };
    if !python.exists() || is_installed().is_err() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        let package = format!("openai=={PYTHON}");
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &package]);
        run(&mut install)?;
        is_installed()?;
    }
    Ok(Program { program: python, folder, script: "ask.py" })
}

/// Returns the program that runs Node.js in the folder in which the package is installed.
pub(crate) fn javascript() -> Result<Program, String> {
    let folder = target().join(format!("openai-js-{JAVASCRIPT}"));
    let is_installed = || {
        let read = "JSON.parse(require('fs').readFileSync('node_modules/openai/package.json'))";
        let check = format!("if ({read}.version !== '{JAVASCRIPT}') process.exit(1)");
        run(Command::new("node").current_dir(&folder).args(["-e", &check]))
    };
    if !folder.exists() || is_installed().is_err() {
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let mut install = Command::new("npm");
        install.args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--fetch-timeout",
            "60000",
            "--prefix",
        ]);
        run(install.arg(&folder).arg(format!("openai@{JAVASCRIPT}")))?;
        is_installed()?;
    }
    Ok(Program { program: PathBuf::from("node"), folder, script: "ask.mjs" })
}

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&printed)))
}
