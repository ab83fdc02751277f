//! Reports which keys of providers are set in the environment. Prints the names of the variables
//! and not their values.

use super::findings::Findings;
use crate::chat::{ProviderName, is_variable_set};

pub(super) fn check(findings: &mut Findings) {
    let (mut set, mut missing) = (Vec::new(), Vec::new());
    for variable in ProviderName::all_key_variables() {
        if is_variable_set(variable) { set.push(variable) } else { missing.push(variable) }
    }
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    findings.ok("keys of providers that are set", list(&set));
    findings.ok("keys of providers that are not set", list(&missing));
}
