// Create, run, files, delete with one release of Daytona's JavaScript client, against a server that is already running.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { after, test } from 'node:test'

const { Daytona } = createRequire(process.env.SDK_DIR + '/')('@daytona/sdk')

// The client's connections would keep this process.
after(() => setImmediate(() => process.exit()))

test('one sandbox', async () => {
  const daytona = new Daytona()
  const sandbox = await daytona.create({ envVars: { FOO: 'bar' } })
  try {
    const ran = await sandbox.process.executeCommand('printf $FOO; exit 3')
    assert.deepEqual([ran.result, ran.exitCode], ['bar', 3])
    await sandbox.fs.uploadFile(Buffer.from('hello'), '/tmp/of/a')
    assert.equal((await sandbox.fs.downloadFile('/tmp/of/a')).toString(), 'hello')
    assert.deepEqual((await sandbox.fs.listFiles('/tmp/of')).map((file) => file.name), ['a'])
    assert.equal((await daytona.get(sandbox.id)).id, sandbox.id)
  } finally {
    await sandbox.delete()
  }
  await assert.rejects(daytona.get(sandbox.id))
})
