use ferrata::state::State;

struct Plain;

fn needs_state<S: State>(_: S) {}

fn main() {
    needs_state(Plain);
}
