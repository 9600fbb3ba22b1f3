// Verifies a delivery of a webhook with the package that receivers use, as a receiver would.
// Environment: SECRET (whsec_..), HEADERS (JSON), BODY. Run by the integration test `webhooks`.
import assert from 'node:assert/strict'
import { Webhook } from 'standardwebhooks'

const { SECRET, HEADERS, BODY } = process.env
const headers = JSON.parse(HEADERS)
const webhook = new Webhook(SECRET)
const payload = webhook.verify(BODY, headers)
assert.deepEqual(payload, JSON.parse(BODY))
assert.throws(() => webhook.verify(BODY.replace('{', '{ '), headers))
console.log(`verified ${payload.type}`)
