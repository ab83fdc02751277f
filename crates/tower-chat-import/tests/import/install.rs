//! Installs the packages of the systems whose histories are imported, from PyPI and npm into
//! cargo's target folder. The first test that needs a package installs it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use tempfile::TempDir;
use tower_chat_testkit::skip;

/// The packages for Python, in one environment, because they share most dependencies.
const PYTHON: [&str; 5] = [
    "agent-framework-core==1.23.0",
    "langgraph==1.2.22",
    "langgraph-checkpoint-sqlite==3.1.2",
    "openai-agents==0.24.0",
    "pydantic-ai-slim==2.62.0",
];

/// The package for Node.js, in the last release that supports Node.js 20.
const JAVASCRIPT: &str = "ai@6.0.326";

/// Runs a script of the folder `makers`, and returns the folder of its files. If the packages
/// cannot be installed, prints a line that begins with `skipped:` and returns `None`.
pub(crate) fn made_by(script: &str) -> Option<TempDir> {
    let is_python = script.ends_with(".py");
    let installed = if is_python { python() } else { javascript() };
    let program = match installed {
        Ok(program) => program,
        Err(reason) => {
            skip(&format!("the histories of {script}"), reason);
            return None;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let makers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/makers");
    let mut command = if is_python {
        let mut command = Command::new(program);
        command.arg(makers.join(script));
        command
    } else {
        // Node.js searches for packages in the folder of the script.
        let copy = program.join(script);
        fs::copy(makers.join(script), &copy).unwrap();
        let mut command = Command::new("node");
        command.arg(copy);
        command
    };
    // With these variables, the scripts would connect to other hosts or load other packages.
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "OPENAI_API_KEY", "LANGSMITH_API_KEY", "PYTHONPATH"] {
        command.env_remove(name);
    }
    run(command.arg(folder.path())).unwrap();
    Some(folder)
}

/// Returns the Python interpreter of the environment with the packages.
fn python() -> Result<PathBuf, String> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    INSTALLED.get_or_init(install_python).clone()
}

fn install_python() -> Result<PathBuf, String> {
    let folder = target().join("import-python");
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let (mark, wanted) = (folder.join("installed.txt"), PYTHON.join("\n"));
    if !python.exists() || fs::read_to_string(&mark).ok().as_ref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(install.args(PYTHON))?;
        fs::write(mark, wanted).map_err(|error| error.to_string())?;
    }
    Ok(python)
}

/// Returns the folder in which the package for Node.js is installed.
fn javascript() -> Result<PathBuf, String> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    INSTALLED.get_or_init(install_javascript).clone()
}

fn install_javascript() -> Result<PathBuf, String> {
    let folder = target().join("import-javascript");
    let mark = folder.join("installed.txt");
    if fs::read_to_string(&mark).ok().as_deref() != Some(JAVASCRIPT) {
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
        run(install.arg(&folder).arg(JAVASCRIPT))?;
        fs::write(mark, JAVASCRIPT).map_err(|error| error.to_string())?;
    }
    run(Command::new("node").arg("--version"))?;
    Ok(folder)
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
