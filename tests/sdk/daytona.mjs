// Daytona's own JavaScript client against a running server.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { after, before, test } from 'node:test'

const { Daytona, DaytonaNotFoundError } = createRequire(process.env.SDK_DIR + '/')('@daytona/sdk')

const daytona = new Daytona()
let sandbox
before(async () => (sandbox = await daytona.create({ envVars: { A: 'b' }, labels: { of: 'node' } })))
after(async () => {
  await sandbox.delete()
  // Its open connections would keep this process alive.
  setImmediate(() => process.exit())
})

test('commands and code', async () => {
  const ran = await sandbox.process.executeCommand('echo $A; exit 3')
  assert.deepEqual([ran.result, ran.exitCode], ['b\n', 3])
  assert.equal((await sandbox.process.codeRun('print(1 + 1)')).result, '2\n')
  await sandbox.codeInterpreter.runCode('x = 1')
  assert.equal((await sandbox.codeInterpreter.runCode('print(x)')).stdout, '1\n')
})

test('sessions', async () => {
  const { process } = sandbox
  await process.createSession('one')
  const run = (command, more) => process.executeSessionCommand('one', { command, ...more })
  await run('export Q=1; cd /tmp')
  assert.equal((await run('echo $Q $PWD')).stdout, '1 /tmp\n')
  const begun = await run('for i in 1 2 3; do echo $i; sleep 0.1; done', { runAsync: true })
  let seen = ''
  const hear = (text) => (seen += text)
  await process.getSessionCommandLogs('one', begun.cmdId, hear, hear)
  assert.equal(seen, '1\n2\n3\n')
  await process.deleteSession('one')
})

test('files', async () => {
  const { fs } = sandbox
  const source = Buffer.from('hello')
  await fs.uploadFiles([{ source, destination: '/tmp/of/a.txt' }, { source, destination: '/tmp/of/b' }])
  assert.equal((await fs.downloadFile('/tmp/of/a.txt')).toString(), 'hello')
  assert.deepEqual((await fs.listFiles('/tmp/of')).map((file) => file.name).sort(), ['a.txt', 'b'])
  assert.deepEqual((await fs.searchFiles('/tmp/of', '*.txt')).files, ['/tmp/of/a.txt'])
  assert.equal((await fs.getFileDetails('/tmp/of/b')).size, 5)
  await assert.rejects(fs.downloadFile('/tmp/of/none'), DaytonaNotFoundError)
})

test('terminals', async () => {
  let seen = ''
  const onData = (data) => (seen += Buffer.from(data).toString())
  const pty = await sandbox.process.createPty({ id: 'pty', cols: 80, rows: 24, onData })
  await pty.waitForConnection()
  await pty.sendInput('echo a$((1 + 1)); exit 4\n')
  assert.equal((await pty.wait()).exitCode, 4)
  assert.match(seen, /a2/)
})

test('stop and start', async () => {
  await sandbox.process.executeCommand('echo kept > /home/daytona/file')
  await sandbox.stop()
  assert.equal(sandbox.state, 'stopped')
  await sandbox.start()
  assert.equal((await sandbox.process.executeCommand('cat /home/daytona/file')).result, 'kept\n')
})
