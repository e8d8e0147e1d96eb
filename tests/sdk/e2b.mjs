// E2B's own JavaScript client against a running server.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'

const { Sandbox, CommandExitError, NotFoundError } = createRequire(process.env.SDK_DIR + '/')('e2b')

/** Waits for a condition; says what it waited for when that takes too long. */
async function until(condition, what) {
  const end = Date.now() + 60_000
  for (;;) {
    const seen = await condition()
    if (seen) return seen
    if (Date.now() > end) throw new Error(`waited 60 s for ${what}`)
    await new Promise((done) => setTimeout(done, 20))
  }
}

async function using(options, body) {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000, ...options })
  try {
    await body(sandbox)
  } finally {
    await sandbox.kill()
  }
}

test('commands', () =>
  using({ envs: { FOO: 'bar' } }, async (sandbox) => {
    const result = await sandbox.commands.run('echo hi; echo $FOO; echo err >&2; pwd')
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['hi\nbar\n/home/user\n', 'err\n', 0])
    await assert.rejects(sandbox.commands.run('exit 3'), (error) => {
      assert.ok(error instanceof CommandExitError)
      return error.exitCode === 3
    })
    const cat = await sandbox.commands.run('head -n 2', { background: true, stdin: true })
    await sandbox.commands.sendStdin(cat.pid, 'abc\ndef\n')
    assert.equal((await cat.wait()).stdout, 'abc\ndef\n')
    const sleep = await sandbox.commands.run('echo begun; sleep 1000', { background: true })
    assert.ok((await sandbox.commands.list()).some((process) => process.pid === sleep.pid))
    const again = await sandbox.commands.connect(sleep.pid)
    assert.equal(await sandbox.commands.kill(sleep.pid), true)
    await assert.rejects(again.wait(), (error) => error.exitCode === -1 || error.exitCode === 255 || /signal/.test(String(error)))
    await until(async () => !(await sandbox.commands.kill(sleep.pid)), 'its end')
    await assert.rejects(sandbox.commands.run('sleep 1000', { timeoutMs: 500 }), /timeout|deadline|timed out/i)
    const many = await Promise.all([...Array(8).keys()].map((n) => sandbox.commands.run(`sleep 0.1; echo ${n}`)))
    assert.deepEqual(many.map((one) => one.stdout), [...Array(8).keys()].map((n) => `${n}\n`))
  }))

test('exit codes', () =>
  using({}, async (sandbox) => {
    await assert.rejects(sandbox.commands.run('kill -9 $$'), (error) => error.exitCode === -1 && error.error === 'signal: killed')
    const result = await sandbox.commands.run('(sleep 0.2; echo late) & echo now')
    assert.equal(result.stdout, 'now\nlate\n')
  }))

test('terminals', () =>
  using({}, async (sandbox) => {
    let seen = ''
    const decoder = new TextDecoder()
    const onData = (data) => (seen += decoder.decode(data, { stream: true }))
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, envs: { ABC: '123' }, onData, timeoutMs: 0 })
    const type = (text) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
    await type('echo $ABC-$((1+1)); stty size\n')
    await until(() => seen.includes('123-2') && seen.includes('24 80'), 'the answer')
    await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 })
    await type('stty size\n')
    await until(() => seen.includes('30 100'), 'the other size')
    await type('exit\n')
    assert.equal((await terminal.wait()).exitCode, 0)
    const other = await sandbox.pty.create({ cols: 80, rows: 24, onData() {}, timeoutMs: 0 })
    assert.equal(await sandbox.pty.kill(other.pid), true)
    await assert.rejects(other.wait())
  }))

test('files', () =>
  using({}, async (sandbox) => {
    const { files } = sandbox
    const root = `/tmp/js-${process.pid}`
    try {
      assert.equal((await files.write(`${root}/deep/a.txt`, 'hello')).path, `${root}/deep/a.txt`)
      assert.equal(await files.read(`${root}/deep/a.txt`), 'hello')
      await files.write([
        { path: `${root}/b`, data: 'B' },
        { path: `${root}/c`, data: new Uint8Array([0, 255]).buffer },
      ])
      assert.deepEqual([...(await files.read(`${root}/c`, { format: 'bytes' }))], [0, 255])
      assert.deepEqual((await files.list(root)).map((entry) => [entry.name, entry.type]), [['b', 'file'], ['c', 'file'], ['deep', 'dir']])
      assert.equal(await files.makeDir(`${root}/d`), true)
      assert.equal(await files.makeDir(`${root}/d`), false)
      await files.rename(`${root}/b`, `${root}/d/b2`)
      assert.equal(await files.exists(`${root}/d/b2`), true)
      assert.equal(await files.exists(`${root}/b`), false)
      assert.equal((await files.getInfo(`${root}/c`)).size, 2)
      const seen = []
      const watch = await files.watchDir(root, (event) => seen.push(`${event.type} ${event.name}`))
      await files.write(`${root}/watched`, 'w')
      await until(() => seen.includes('create watched'), 'an event')
      await files.rename(`${root}/watched`, `${root}/renamed`)
      await until(() => seen.includes('create renamed'), 'the new name')
      assert.ok(seen.indexOf('rename watched') < seen.indexOf('create renamed'), String(seen))
      await sandbox.commands.run(`chmod 600 ${root}/renamed`)
      await until(() => seen.includes('chmod renamed'), 'other permissions')
      await files.remove(`${root}/renamed`)
      await until(() => seen.includes('remove renamed'), 'another event')
      await watch.stop()
      await assert.rejects(files.read(`${root}/nothing`), NotFoundError)
      const answer = await fetch(await sandbox.downloadUrl(`${root}/deep/a.txt`))
      assert.equal(await answer.text(), 'hello')
    } finally {
      await files.remove(root)
    }
  }))

test('from create to kill', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 60_000, metadata: { js: String(process.pid) } })
  assert.equal(await sandbox.isRunning(), true)
  assert.equal((await sandbox.getInfo()).state, 'running')
  await sandbox.setTimeout(600_000)
  const listed = await Sandbox.list({ query: { metadata: { js: String(process.pid) } } }).nextItems()
  assert.deepEqual(listed.map((one) => one.sandboxId), [sandbox.sandboxId])
  assert.ok((await sandbox.getMetrics()).length > 0)
  await (sandbox.betaPause ?? sandbox.pause).call(sandbox)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('echo back')).stdout, 'back\n')
  await again.kill()
  assert.equal(await again.isRunning(), false)
})
