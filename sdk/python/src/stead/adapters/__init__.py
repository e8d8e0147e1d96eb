"""Adapters for agent frameworks. Each module needs the framework it is named after, which is an extra of this package.

`langchain` is for deepagents, `inspect` for Inspect AI, `openai_agents` for the OpenAI Agents SDK, `pydantic_ai`,
`harbor`, `swerex`, `smolagents` and `autogen` for the frameworks of these names.
"""
