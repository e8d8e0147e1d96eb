// Create, run, files, kill with one release of E2B's JavaScript client, against a server that is already running.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'

const { Sandbox, CommandExitError } = createRequire(process.env.SDK_DIR + '/')('e2b')

test('one sandbox', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000, envs: { FOO: 'bar' } })
  try {
    const result = await sandbox.commands.run('echo $FOO; echo err >&2')
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['bar\n', 'err\n', 0])
    await assert.rejects(
      sandbox.commands.run('exit 3'),
      (error) => error instanceof CommandExitError && error.exitCode === 3,
    )
    await sandbox.files.write('/home/user/of/a', 'hello')
    assert.equal(await sandbox.files.read('/home/user/of/a'), 'hello')
    assert.deepEqual((await sandbox.files.list('/home/user/of')).map((entry) => entry.name), ['a'])
    assert.equal(await sandbox.isRunning(), true)
  } finally {
    await sandbox.kill()
  }
  assert.equal(await sandbox.isRunning(), false)
})
