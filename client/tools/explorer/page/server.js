'use strict';
// Calls the server's methods in /v1/, a few at a time.

// An error of the server, or of a failed connection to it.
class Fault extends Error {
  constructor(code, reason, message) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

const GONE = 'The explorer does not answer. Start posenc explore again with the same --port; ' +
    'what is shown is of its last answers.';

// The server takes two calls a core, also from other clients.
const MOST_AT_ONCE = 3;
let asking = 0;
const waiting = [];

async function turn() {
  if (asking >= MOST_AT_ONCE) await new Promise(resolve => waiting.push(resolve));
  asking += 1;
}

function done() {
  asking -= 1;
  if (waiting.length > 0) waiting.shift()();
}

async function ask(method, message) {
  await turn();
  try {
    return await askNow(method, message);
  } finally {
    done();
  }
}

async function askNow(method, message) {
  const request = {
    method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify(message),
  };
  let response, text;
  // A call may be repeated: the server closes silent connections, so that a
  // browser that was suspended loses one. If the server is gone, the repeat
  // fails too.
  for (let tries = 1; text === undefined; ++tries) {
    try {
      response = await fetch('/v1/' + method, request);
      text = await response.text();
    } catch (error) {
      if (tries === 2) throw new Fault('UNAVAILABLE', '', GONE);
    }
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch (error) {
    throw new Fault('UNKNOWN', '', 'The server refused: ' + (text.trim() || 'HTTP ' + response.status));
  }
  if (response.ok) return answer;
  const told = answer.error || {};
  throw new Fault(told.code, told.reason, told.message || 'HTTP ' + response.status);
}

// Shortens an error for people: the request has the source in two fields.
function plainFact(message) {
  return message.replace(/ \(\d+ more: [^)]*\)$/, '').replace(/^(rope|compare_with)\.config_json\b/, 'config.json');
}

// The values of a tensor that came as base64 of little-endian float32.
function floats(tensor) {
  const bytes = Uint8Array.from(atob(tensor.data), c => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function toBase64(bytes) {
  let text = '';
  for (let i = 0; i < bytes.length; i += 0x8000) {
    text += String.fromCharCode.apply(null, bytes.subarray(i, i + 0x8000));
  }
  return btoa(text);
}
