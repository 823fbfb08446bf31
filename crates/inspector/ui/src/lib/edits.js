// Changed channels as the API and the command take them.

// Returns the operations as JSON text, or throws what is wrong. The values go as they are: a number of many digits would not survive being read here.
export function patch(edits) {
  for (const edit of edits) {
    try { JSON.parse(edit.text); } catch { throw new Error(`${edit.name}: this is not JSON; text stands in quotes`); }
  }
  return `[${edits.map((edit) => `{"set":[${JSON.stringify(edit.name)},${edit.text}]}`).join(',')}]`;
}

// A value of several lines as one word of a command: line breaks between values mean nothing, and those within texts are escaped in JSON.
export const words = (edits) => edits.flatMap((edit) => ['--set', `${edit.name}=${edit.text.replace(/\s*\n\s*/g, ' ')}`]);
