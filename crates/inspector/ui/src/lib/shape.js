// The shape of an answer, as docs/questions.md has it, as something that a form can be made of.

const INTS = /^[iu](8|16|32|64|128)$/;

// Returns `{ kind, … }`; what has no form of its own is `json`.
export function read(shape) {
  if (typeof shape === 'string') {
    if (shape === 'bool') return { kind: 'bool' };
    if (shape === 'text' || shape === 'char') return { kind: 'text', short: shape === 'char' };
    if (INTS.test(shape)) return { kind: 'number', whole: true, least: shape[0] === 'u' ? 0 : undefined };
    if (shape === 'number') return { kind: 'number' };
    if (shape === 'null') return { kind: 'null' };
    return { kind: 'json' };
  }
  if (!shape || typeof shape !== 'object') return { kind: 'json' };
  if (Array.isArray(shape.one_of)) return { kind: 'choice', values: shape.one_of };
  if (Array.isArray(shape.variants)) return { kind: 'choice', values: shape.variants };
  if (shape.nullable !== undefined) return { kind: 'nullable', of: read(shape.nullable) };
  if (shape.list !== undefined) return { kind: 'list', of: read(shape.list) };
  if (shape.object) {
    const fields = Object.entries(shape.object).map(([key, of]) => {
      const needed = !key.endsWith('?');
      return { name: /[?!]$/.test(key) ? key.slice(0, -1) : key, needed, of: read(of) };
    });
    return { kind: 'object', fields };
  }
  return { kind: 'json' };
}

// What a form begins with.
export function blank(form) {
  switch (form.kind) {
    case 'bool': return null;
    case 'text': return '';
    case 'number': return '';
    case 'choice': return null;
    case 'nullable': return { is: false, value: blank(form.of) };
    case 'list': return [];
    case 'object': return Object.fromEntries(form.fields.map((field) => [field.name, { is: field.needed, value: blank(field.of) }]));
    case 'null': return null;
    default: return '';
  }
}

// What a form begins with that is to show a value.
export function filled(form, value) {
  switch (form.kind) {
    case 'number': return String(value);
    case 'nullable': return value === null ? blank(form) : { is: true, value: filled(form.of, value) };
    case 'list': return Array.isArray(value) ? value.map((one) => filled(form.of, one)) : [];
    case 'object': return Object.fromEntries(form.fields.map((field) => {
      const is = value !== null && typeof value === 'object' && field.name in value;
      return [field.name, { is: is || field.needed, value: is ? filled(field.of, value[field.name]) : blank(field.of) }];
    }));
    case 'json': return JSON.stringify(value, null, 2);
    default: return value;
  }
}

// Returns what a form says as JSON text, or throws what is missing. As text, for a number may have more digits than this language keeps.
export function said(form, value, at = '') {
  const where = at ? `${at}: ` : '';
  switch (form.kind) {
    case 'bool':
    case 'choice':
      if (value === null) throw new Error(`${where}choose one`);
      return JSON.stringify(value);
    case 'text':
      if (form.short && [...value].length !== 1) throw new Error(`${where}one character`);
      return JSON.stringify(value);
    case 'number': {
      const text = String(value).trim();
      if (!(form.whole ? /^-?(0|[1-9]\d*)$/ : /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/).test(text)) throw new Error(`${where}${form.whole ? 'a whole number' : 'a number'}`);
      if (form.least === 0 && text.startsWith('-')) throw new Error(`${where}at least 0`);
      return text;
    }
    case 'nullable': return value.is ? said(form.of, value.value, at) : 'null';
    case 'list': return `[${value.map((one, index) => said(form.of, one, `${at || 'entry'} ${index + 1}`)).join(',')}]`;
    case 'object': {
      const fields = form.fields.filter((field) => value[field.name].is);
      return `{${fields.map((field) => `${JSON.stringify(field.name)}:${said(field.of, value[field.name].value, at ? `${at}.${field.name}` : field.name)}`).join(',')}}`;
    }
    case 'null': return 'null';
    default:
      try { JSON.parse(value); } catch (error) { throw new Error(`${where}this is not JSON: ${error.message}`); }
      return value;
  }
}
